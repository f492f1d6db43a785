"""Several architectures, exported for real: speculative output is plain output, and torch's."""

from ov_specdec import SpeculativePipeline
from tests.support.tiny import REFERENCE_PROMPTS

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
