"""Several architectures, exported for real: speculative output is plain output, and torch's."""

import random

import pytest

from ov_specdec import SpeculativePipeline
from tests.tiny import REFERENCE_PROMPTS, REFERENCE_TOKENS

NOT_PAGED = ("mpt",)
"""Counts positions by index, which OpenVINO's transformation does not carry over."""


@pytest.mark.parametrize(
    ("kv", "max_hidden_tokens"), [("auto", None), ("stateful", None), ("stateful", 0)]
)
def test_speculative_is_plain_is_the_checkpoints_own(architecture, pair, kv, max_hidden_tokens):
    pipeline = SpeculativePipeline(
        pair.main, pair.draft, kv=kv, precision="exact", max_hidden_tokens=max_hidden_tokens
    )
    is_paged = kv == "auto" and architecture not in NOT_PAGED
    assert pipeline.main.kv == ("paged" if is_paged else "stateful")
    options = {"max_new_tokens": REFERENCE_TOKENS, "ignore_eos": True}
    accepted = drafted = 0
    for prompt, output in zip(REFERENCE_PROMPTS, pair.expected, strict=True):
        assert pipeline.generate(prompt, num_assistant_tokens=0, **options).token_ids == output
        for length in (1, 4):
            result = pipeline.generate(prompt, num_assistant_tokens=length, **options)
            assert result.token_ids == output
            accepted += result.stats.accepted
            drafted += result.stats.drafted
    assert 0.05 * drafted < accepted < drafted, "nothing was rejected, or nothing accepted"


MIXED = (
    {},
    {"temperature": 0.8, "seed": 1},
    {"num_assistant_tokens": 3},
    {"temperature": 1.2, "top_p": 0.9, "seed": 2, "num_assistant_tokens": 4},
    {"num_assistant_tokens": 0, "repetition_penalty": 1.3},
)


def test_sixteen_requests_at_once_equal_the_same_requests_alone(pair):
    generator = random.Random(7)  # noqa: S311
    prompts = [
        generator.choices(range(1, 290), k=size) for size in (1, 5, 33, 90, 3, 64, 17, 40) * 2
    ]
    own = [{"max_new_tokens": 8 + i, **MIXED[i % len(MIXED)]} for i in range(len(prompts))]
    with SpeculativePipeline(pair.main, pair.draft, precision="exact") as pipeline:
        shared = {"ignore_eos": True, "cache_prompt": False}
        results = pipeline.generate_batch(prompts, own, **shared)
        for prompt, options, result in zip(prompts, own, results, strict=True):
            alone = pipeline.generate(prompt, **options, **shared)
            assert result.token_ids == alone.token_ids
        together = [r.num_sequences for result in results for r in result.stats.rounds]
        assert pipeline.main.kv == "stateful" or max(together) > 8
        assert sum(result.stats.accepted for result in results) > 0
