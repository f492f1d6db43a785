from dataclasses import replace

import pytest

from ov_specdec import GenerationStats, RoundStats

PREFILL = RoundStats(0, 0, 1, 0.0, 0.4, 0.0, 0.5, num_passes=2)
STATS = GenerationStats(
    prompt_tokens=7,
    rounds=[
        PREFILL,
        RoundStats(4, 2, 3, 0.1, 0.2, 0.01, 0.35),
        RoundStats(4, 4, 5, 0.1, 0.2, 0.0, 0.35),
    ],
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("generated_tokens", 9),
        ("drafted", 8),
        ("accepted", 6),
        ("acceptance_rate", 0.75),
        ("main_passes", 4),
        ("tokens_per_main_pass", 3.0),
        ("time_to_first_token", 0.5),
        ("draft_seconds", 0.2),
        ("verify_seconds", 0.4),  # the prefill is not verification
        ("rollback_seconds", 0.01),
        ("seconds", 1.2),
        ("tokens_per_second", 7.5),
        ("time_per_output_token", 0.7 / 8),
    ],
)
def test_figures_follow_from_the_rounds(name, value):
    assert getattr(STATS, name) == pytest.approx(value)
    assert name == "generated_tokens" or STATS.as_dict()[name] == getattr(STATS, name)


def test_failures_of_the_draft_model_are_told_where_there_are_any():
    assert STATS.draft_failures == 0
    assert "draft_failures" not in STATS.as_dict()
    failed = replace(STATS.rounds[1], draft_failed=True)
    stats = GenerationStats(7, [PREFILL, failed, STATS.rounds[2]])
    assert stats.draft_failures == stats.as_dict()["draft_failures"] == 1


def test_plain_decoding_of_one_token_divides_by_nothing():
    stats = GenerationStats(prompt_tokens=1, rounds=[PREFILL])
    assert stats.acceptance_rate == 0.0
    assert stats.time_per_output_token == 0.0
    assert stats.tokens_per_main_pass == 1.0
