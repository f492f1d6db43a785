"""How often candidates are accepted: by place, by confidence, and by kind of match."""

import pytest

from ov_specdec.speculation.acceptance import MODEL_PRIOR, Acceptance, Common
from tests.rounds import a_round


def taught(*rounds, common=None):
    acceptance = Acceptance(Common() if common is None else common)
    for stats in rounds:
        acceptance.learn(stats)
    return acceptance


def places(acceptance, length=15, match=None):
    source = "model" if match is None else "prompt-lookup"
    return acceptance.by_place(source, match, length)


def test_before_anything_is_known_places_have_the_prior():
    assert places(taught(), 3) == pytest.approx([MODEL_PRIOR] * 3)
    assert places(taught(), 3, match=0.5) == pytest.approx([0.5] * 3)


def test_places_are_told_apart():
    first, second, *_ = places(taught(*[a_round(4, 0), a_round(4, 4)] * 100))
    assert first == pytest.approx(0.5, abs=0.05)
    assert second > 0.9  # once the first is accepted, all are


def test_a_place_that_was_not_reached_is_like_the_one_before():
    known = places(taught(*[a_round(2, 2)] * 100))
    assert known[14] == pytest.approx(known[1], abs=0.05)
    assert known[14] > 0.9


def test_candidates_after_the_first_that_was_rejected_teach_nothing():
    known = places(taught(*[a_round(3, 1)] * 100))
    assert known[1] < 0.1
    assert known[2] == pytest.approx(known[1], abs=0.05)


def test_a_new_text_starts_with_what_others_had_and_is_believed_soon():
    common = Common()
    taught(*[a_round(4, 0)] * 100, common=common)
    start = places(taught(common=common), 1)[0]
    assert start < 0.1
    assert places(taught(*[a_round(4, 4)] * 40, common=common), 1)[0] > start + 0.4


def test_a_confidence_is_worth_what_others_are_until_it_is_known():
    assert taught().calibrated(0.1) == pytest.approx(MODEL_PRIOR)
    acceptance = taught(*[a_round(4, 4, confidences=(0.3,) * 4)] * 20)
    assert acceptance.calibrated(0.9) == pytest.approx(acceptance.calibrated(0.1))
    assert acceptance.calibrated(0.9) > 0.9


def test_each_confidence_becomes_known():
    wrong = [a_round(1, 0, confidences=(0.9,)), a_round(1, 1, confidences=(0.3,))]
    acceptance = taught(*wrong * 50)
    assert acceptance.calibrated(0.9) < 0.1
    assert acceptance.calibrated(0.3) > 0.9


def test_each_kind_of_match_has_its_own_acceptance():
    long = a_round(4, 4, source="prompt-lookup", match_confidence=0.75)
    short = a_round(4, 0, source="prompt-lookup", match_confidence=0.5)
    acceptance = taught(*[long, short] * 50)
    assert places(acceptance, 1, match=0.75)[0] > 0.9
    assert places(acceptance, 1, match=0.5)[0] < 0.1


def test_a_match_that_was_declined_teaches_what_it_would_have_been_worth():
    rounds = [a_round(declined=("prompt-lookup", 0.5, True))] * 50
    assert places(taught(*rounds), 1, match=0.5)[0] > 0.8
