"""What a draft model needs to see: `python -m tests.benchmarks draft-context`.

Prints the share of a main model's greedy tokens that the draft's most likely ones agree with, by
how many tokens of the prompt the draft is told, the latest ones. The text after them it sees whole.
"""

import click
import numpy as np

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.prompts import CODE, read_prompts
from ov_specdec.cache.sequence import CachedSequence, alone
from tests.benchmarks.options import PATH, pair_options
from tests.benchmarks.peers.prompts import encode_prompts, mixed_prompts

NUM_TOKENS = 96
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


def agreement(runner, prompt, output):
    """The share of a text's tokens that are the most likely ones after what is told of a prompt."""
    cache = CachedSequence(runner, object())
    tokens = [*prompt, *output[:-1]]
    done = alone(cache.advance(tokens, num_rows=len(output)))
    equal = done.logits.argmax(axis=1) == np.array(output)
    cache.drop()
    return float(equal.mean())


@click.command()
@pair_options
@click.option("--prompts", "file", type=PATH, help="One per line; default: mixed ones of code.")
def draft_context(main, draft, file):
    """Count how often a draft agrees, by how much of the prompt it is told."""
    with SpeculativePipeline(main, draft, fixed_sizes="none") as pipeline:
        if file is None:
            prompts = mixed_prompts(pipeline.tokenizer, CODE)
        else:
            prompts = encode_prompts(pipeline.tokenizer, read_prompts(file), None)
        options = {"max_new_tokens": NUM_TOKENS, "ignore_eos": True, "num_assistant_tokens": 0}
        outputs = [result.token_ids for result in pipeline.generate_batch(prompts, **options)]
        runner = pipeline.draft.runner
        room = runner.max_length - NUM_TOKENS
        for size in (size for size in SIZES if size <= room):
            shares = [
                agreement(runner, prompt[-size:], output)
                for prompt, output in zip(prompts, outputs, strict=True)
            ]
            click.echo(f"{size:5d} tokens of the prompt: {np.mean(shares):.3f}")
