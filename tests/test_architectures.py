"""Several architectures, exported for real: speculative output is plain output, and torch's."""

import pytest

from ov_specdec import SpeculativePipeline
from tests.tiny import ARCHITECTURES, REFERENCE_PROMPTS, REFERENCE_TOKENS, TinyPair, make_pair

NOT_PAGED = ("mpt",)
"""Counts positions by index, which OpenVINO's transformation does not carry over."""


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request):
    return request.param


@pytest.fixture(scope="module")
def pair(architecture, shelf, tmp_path_factory):
    target = tmp_path_factory.mktemp(architecture) / "pair"
    return TinyPair(shelf.copy(architecture, lambda f: make_pair(architecture, f), target))


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
        for length in (1, 4, "auto"):
            result = pipeline.generate(prompt, num_assistant_tokens=length, **options)
            assert result.token_ids == output
            accepted += result.stats.accepted
            drafted += result.stats.drafted
    assert 0.05 * drafted < accepted < drafted, "nothing was rejected, or nothing accepted"
