import pytest

from ov_specdec.planning.draft_length import (
    MAX_REQUESTED_LENGTH,
    HeuristicLength,
    Offer,
    Plan,
)
from ov_specdec.results.stats import RoundStats

ASK = (Offer("model"),)


def a_round(drafted, accepted):
    return RoundStats(drafted, accepted, accepted + 1, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("start", "drafted", "accepted", "expected"),
    [
        (5, 5, 5, 7),  # all accepted
        (5, 5, 4, 4),
        (5, 5, 0, 4),
        (1, 1, 0, 1),  # never below one
        (5, 2, 2, 7),  # the budget or the lookup allowed just two, and both were accepted
        (5, 0, 0, 5),  # nothing drafted, nothing learnt
        (MAX_REQUESTED_LENGTH - 1, 9, 9, MAX_REQUESTED_LENGTH),
        (MAX_REQUESTED_LENGTH + 9, 9, 9, MAX_REQUESTED_LENGTH + 9),  # asked for
    ],
)
def test_heuristic_follows_the_last_round(start, drafted, accepted, expected):
    policy = HeuristicLength(start)
    policy.update(a_round(drafted, accepted))
    assert policy.answer(ASK).length == expected


@pytest.mark.parametrize(("room", "length"), [(9, 4), (4, 4), (3, 3), (0, 0), (-1, 0)])
def test_a_plan_stays_within_the_room_there_is(room, length):
    plan = Plan(4, "constant", expected=(0.1,)).within(room)
    assert (plan.length, plan.expected) == (length, (0.1,))
