import pytest

from ov_specdec.policy import MAX_DRAFT_LENGTH, ConstantLength, HeuristicLength
from ov_specdec.stats import RoundStats


def a_round(drafted, accepted):
    return RoundStats(drafted, accepted, accepted + 1, 0.0, 0.0, 0.0, 0.0)


def test_constant_length_never_changes():
    policy = ConstantLength(4)
    policy.update(a_round(4, 0))
    assert policy.num_draft_tokens == 4


def test_heuristic_starts_at_five():
    assert HeuristicLength().num_draft_tokens == 5


@pytest.mark.parametrize(
    ("start", "drafted", "accepted", "expected"),
    [
        (5, 5, 5, 7),  # all stood
        (5, 5, 4, 4),
        (5, 5, 0, 4),
        (1, 1, 0, 1),  # never below one
        (5, 2, 2, 7),  # the budget or the lookup allowed just two, and both stood
        (5, 0, 0, 5),  # nothing drafted, nothing learnt
        (MAX_DRAFT_LENGTH - 1, 9, 9, MAX_DRAFT_LENGTH),
    ],
)
def test_heuristic_follows_the_last_round(start, drafted, accepted, expected):
    policy = HeuristicLength(start)
    policy.update(a_round(drafted, accepted))
    assert policy.num_draft_tokens == expected
