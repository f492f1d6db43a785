"""What is learnt from rounds: acceptance by place and confidence, and costs in plain rounds."""

import pytest

from ov_specdec.experience import OLD, PACES, PRIOR, PRIOR_CHANGE, Acceptance, Experience
from ov_specdec.stats import RoundStats


def a_round(drafted=0, accepted=0, seconds=1.0, drafting=0.0, size=None, **more):
    return RoundStats(
        drafted,
        accepted,
        accepted + 1,
        drafting,
        seconds,
        0.0,
        seconds + drafting,
        pass_tokens=1 + drafted if size is None else size,
        source=more.pop("source", "model"),
        **more,
    )


def test_before_anything_is_known_places_have_the_prior():
    assert Acceptance().by_place(3) == pytest.approx([PRIOR] * 3)


def test_places_are_told_apart():
    acceptance = Acceptance()
    for _ in range(50):
        acceptance.learn(a_round(4, 0))
        acceptance.learn(a_round(4, 4))
    first, second, *_ = acceptance.by_place(4)
    assert first == pytest.approx(0.5, abs=0.05)
    assert second > 0.9  # once the first stands, all do


def test_a_place_that_was_not_reached_is_like_the_one_before():
    acceptance = Acceptance()
    for _ in range(50):
        acceptance.learn(a_round(2, 2))
    places = acceptance.by_place(16)
    assert places[15] == places[1] > 0.95


def test_candidates_after_the_first_that_fell_teach_nothing():
    acceptance = Acceptance()
    for _ in range(50):
        acceptance.learn(a_round(3, 1))
    places = acceptance.by_place(3)
    assert places[1] < 0.1
    assert places[2] == places[1]


def test_confidence_is_believed_until_it_proves_wrong():
    acceptance = Acceptance()
    assert acceptance.given(0.9) == pytest.approx(0.9)
    for _ in range(50):
        acceptance.learn(a_round(1, 0, confidences=(0.9,)))
        acceptance.learn(a_round(1, 1, confidences=(0.3,)))
    assert acceptance.given(0.9) < 0.1
    assert acceptance.given(0.3) > 0.9


def test_doubt_lets_a_new_try_count_for_more():
    stubborn, doubting = Acceptance(), Acceptance()
    for acceptance in (stubborn, doubting):
        for _ in range(20):
            acceptance.learn(a_round(4, 0))
    doubting.doubt()
    for acceptance in (stubborn, doubting):
        acceptance.learn(a_round(4, 4))
    assert doubting.by_place(1)[0] > 1.5 * stubborn.by_place(1)[0]


def timed(*rounds):
    experience, last_size = Experience(), 100
    for stats in rounds:
        experience.learn(stats, last_size)
        last_size = stats.pass_tokens
    return experience


FIRST = 99.0
"""Seconds of the first pass of a size, which no figure may show."""

OPENING = [
    a_round(seconds=FIRST),
    a_round(seconds=2.0),
    a_round(4, 2, seconds=FIRST, drafting=FIRST),  # the draft model reads the prompt
    a_round(4, 2, seconds=3.6, drafting=0.8),
]


def test_costs_are_in_plain_rounds():
    experience = timed(*OPENING)
    assert experience.is_timed
    assert experience.plain_seconds == 2.0
    assert experience.drafting("model").at(4) == pytest.approx(0.4)
    assert experience.further_tokens.at(4) == pytest.approx(0.8)


def test_a_change_of_size_is_what_a_pass_takes_longer_than_the_next_of_its_size():
    back = [a_round(seconds=3.0), a_round(seconds=2.0)]
    assert timed(*OPENING).change == PRIOR_CHANGE
    assert timed(*OPENING, *back).change == pytest.approx(0.5)
    # A pass over five tokens costs 1.8 plain rounds, and with the change a third more.
    again = [a_round(4, 2, seconds=4.8), a_round(4, 2, seconds=3.6)]
    assert timed(*OPENING, *back, *again).change == pytest.approx((0.5 + 0.6) / 2, abs=0.02)


def test_a_round_that_changed_the_size_counts_without_the_change():
    back = [a_round(seconds=3.0), a_round(seconds=2.0)]
    experience = timed(*OPENING[:2], *OPENING[2:3], *back, a_round(4, 2, seconds=4.0))
    assert experience.further_tokens.at(4) == pytest.approx(4.0 / 2.0 - 1.0 - 0.5)


def test_a_pass_that_was_filled_up_counts_with_its_size():
    filled = [a_round(2, 1, seconds=FIRST, size=5), a_round(2, 1, seconds=3.0, size=5)]
    experience = timed(a_round(), a_round(), *filled)
    assert experience.further_tokens.at(4) == pytest.approx(2.0)


def test_times_without_other_sizes_beside_them_teach_nothing():
    rounds = [a_round(), a_round(), *[a_round(4, 2, seconds=1.4)] * PACES]
    slow = [a_round(4, 2, seconds=5.0)] * 20  # the machine has got busy
    before, after = timed(*rounds), timed(*rounds, *slow)
    assert after.further_tokens.at(4) == before.further_tokens.at(4)


def test_a_size_is_measured_against_others_when_plain_rounds_are_long_ago():
    rounds = [a_round(), a_round(), *[a_round(4, 2, seconds=1.4)] * PACES]
    # The machine has got half as fast; twelve candidates cost 2.6 plain rounds all the same.
    slow = [a_round(4, 2, seconds=2.8)] * PACES + [a_round(12, 9, seconds=5.2)] * 3
    assert timed(*rounds, *slow).further_tokens.at(12) == pytest.approx(1.6)


def test_plain_rounds_get_old():
    rounds = [a_round(), a_round(), *[a_round(4, 2, seconds=1.4)] * OLD]
    assert not timed(*rounds[:-1]).is_old
    assert timed(*rounds).is_old


def test_generations_of_different_kinds_share_costs_but_no_acceptance():
    experience = timed(*OPENING, *[a_round(4, 4, seconds=3.6)] * 20)
    cost = experience.further_tokens.at(4)
    experience.turn_to("hot")
    assert experience.acceptance("model").by_place(1)[0] == PRIOR
    for _ in range(20):
        experience.learn(a_round(4, 0, seconds=3.6), 5)
    assert experience.acceptance("model").by_place(1)[0] < 0.1
    assert experience.further_tokens.at(4) == pytest.approx(cost, rel=0.1)
    experience.turn_to(None)
    assert experience.acceptance("model").by_place(1)[0] > 0.9


def test_each_kind_of_match_has_its_own_acceptance():
    experience = timed(
        *[a_round(4, 4, source="prompt-lookup", confidences=(0.75,) * 4)] * 20,
        *[a_round(4, 0, source="prompt-lookup", confidences=(0.5,) * 4)] * 20,
    )
    assert experience.acceptance("prompt-lookup", 0.75).by_place(1)[0] > 0.9
    assert experience.acceptance("prompt-lookup", 0.5).by_place(1)[0] < 0.1
