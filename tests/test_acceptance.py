"""How often candidates are accepted: by place, by confidence, and by kind of match."""

import pytest

from ov_specdec.speculation.acceptance import PRIOR, AcceptanceStats, DraftHistory
from tests.rounds import a_round


def test_before_anything_is_known_places_have_the_prior():
    assert AcceptanceStats().by_place(3) == pytest.approx([PRIOR] * 3)


def test_places_are_told_apart():
    acceptance = AcceptanceStats()
    for _ in range(50):
        acceptance.learn(a_round(4, 0))
        acceptance.learn(a_round(4, 4))
    first, second, *_ = acceptance.by_place(4)
    assert first == pytest.approx(0.5, abs=0.05)
    assert second > 0.9  # once the first is accepted, all are


def test_a_place_that_was_not_reached_is_like_the_one_before():
    acceptance = AcceptanceStats()
    for _ in range(50):
        acceptance.learn(a_round(2, 2))
    places = acceptance.by_place(16)
    assert places[15] == places[1] > 0.95


def test_candidates_after_the_first_that_was_rejected_teach_nothing():
    acceptance = AcceptanceStats()
    for _ in range(50):
        acceptance.learn(a_round(3, 1))
    places = acceptance.by_place(3)
    assert places[1] < 0.1
    assert places[2] == places[1]


def test_confidence_is_believed_until_it_proves_wrong():
    acceptance = AcceptanceStats()
    assert acceptance.given(0.9) == pytest.approx(0.9)
    for _ in range(50):
        acceptance.learn(a_round(1, 0, confidences=(0.9,)))
        acceptance.learn(a_round(1, 1, confidences=(0.3,)))
    assert acceptance.given(0.9) < 0.1
    assert acceptance.given(0.3) > 0.9


def test_doubt_lets_a_new_try_count_for_more():
    stubborn, doubting = AcceptanceStats(), AcceptanceStats()
    for acceptance in (stubborn, doubting):
        for _ in range(20):
            acceptance.learn(a_round(4, 0))
    doubting.discount()
    for acceptance in (stubborn, doubting):
        acceptance.learn(a_round(4, 4))
    assert doubting.by_place(1)[0] > 1.5 * stubborn.by_place(1)[0]


def test_each_kind_of_match_has_its_own_acceptance():
    history = DraftHistory()
    for accepted, confidence in ((4, 0.75), (0, 0.5)):
        for _ in range(20):
            history.learn(a_round(4, accepted, source="lookup", match_confidence=confidence))
    assert history.acceptance("lookup", 0.75).by_place(1)[0] > 0.9
    assert history.acceptance("lookup", 0.5).by_place(1)[0] < 0.1


def test_idle_rounds_are_counted_up_to_the_next_draft():
    history = DraftHistory()
    for _ in range(3):
        history.learn(a_round())
    assert history.idle == 3
    history.learn(a_round(2, 1))
    assert history.idle == 0
