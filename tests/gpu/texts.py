"""Texts of a pipeline for the same prompts, and whether both kinds of draft token were in them."""

from ov_specdec import SpeculativePipeline
from tests.support.prompts import PROMPTS

NUM_TOKENS = 32


def alone(pipeline, length, prompts=PROMPTS):
    """Results of one prompt after the other. length: of drafts, constant: times mean nothing."""
    options = {"max_new_tokens": NUM_TOKENS, "num_assistant_tokens": length}
    return [pipeline.generate(prompt, **options) for prompt in prompts]


def together(pipeline, length, prompts=PROMPTS):
    """Results of prompts that share passes, where the cache allows it."""
    options = {"max_new_tokens": NUM_TOKENS, "num_assistant_tokens": length}
    return pipeline.generate_batch(prompts, **options)


def ids(results):
    """Their tokens."""
    return [result.token_ids for result in results]


def verifies(results):
    """Whether draft tokens were accepted, and rejected, so that something was rolled back."""
    accepted = sum(result.stats.accepted for result in results)
    return 0 < accepted < sum(result.stats.drafted for result in results)


def plain_on_cpu(prompts, num_tokens=NUM_TOKENS):
    """Ids that follow prompts in plain decoding on the CPU in f32."""
    with SpeculativePipeline(drafter="none", precision="exact") as cpu:
        return ids(cpu.generate_batch(prompts, max_new_tokens=num_tokens))
