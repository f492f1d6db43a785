"""Several architectures, exported for real: speculative output is plain output, and torch's."""

import random

import pytest

from ov_specdec import SpeculativePipeline
from tests.support.tiny import ARCHITECTURES, REFERENCE_PROMPTS

FEW = pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(n, marks=[] if n in ("llama", "mpt") else pytest.mark.deep)
        for n in ARCHITECTURES
    ],
    indirect=True,
    scope="module",
)
"""One that is paged, and one that is not."""

NOT_PAGED = ("mpt",)
"""Counts positions by index, which OpenVINO's transformation does not carry over."""


def compare_with_torch(pair, num_tokens, lengths, **settings):
    """Outputs, plain and with drafts of several lengths, are torch's; which KV cache had them."""
    options = {"max_new_tokens": num_tokens, "ignore_eos": True}
    accepted = drafted = 0
    with SpeculativePipeline(pair.main, pair.draft, precision="exact", **settings) as pipeline:
        for prompt, output in zip(REFERENCE_PROMPTS, pair.expected, strict=True):
            for length in (0, *lengths):
                result = pipeline.generate(prompt, num_assistant_tokens=length, **options)
                assert result.token_ids == output[:num_tokens]
                accepted += result.stats.accepted
                drafted += result.stats.drafted
        assert 0.05 * drafted < accepted < drafted, "nothing was rejected, or nothing accepted"
        return pipeline.main.kv


def test_speculative_is_plain_is_the_checkpoints_own_on_both_caches(architecture, pair):
    found = [compare_with_torch(pair, 40, (4,), kv=kv) for kv in ("auto", "stateful")]
    assert found == ["stateful" if architecture in NOT_PAGED else "paged", "stateful"]


MIXED = (
    {},
    {"temperature": 0.8, "seed": 1},
    {"num_assistant_tokens": 3},
    {"temperature": 1.2, "top_p": 0.9, "seed": 2, "num_assistant_tokens": 4},
    {"num_assistant_tokens": 0, "repetition_penalty": 1.3},
)


@FEW
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
