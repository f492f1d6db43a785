"""What rounds cost, learnt in plain rounds."""

import pytest

from ov_specdec.speculation.cost_model import OLD, PACES, PRIOR_CHANGE, CostModel
from tests.rounds import a_round


def timed(*rounds):
    costs, last_size = CostModel(), 100
    for stats in rounds:
        costs.learn(stats, last_size)
        last_size = stats.pass_tokens
    return costs


FIRST = 99.0
"""Seconds of the first pass of a size, which no figure may show."""

OPENING = [
    a_round(seconds=FIRST),
    a_round(seconds=2.0),
    a_round(4, 2, seconds=FIRST, drafting=FIRST),  # the draft model reads the prompt
    a_round(4, 2, seconds=3.6, drafting=0.8),
]


def test_costs_are_in_plain_rounds():
    costs = timed(*OPENING)
    assert costs.is_timed
    assert costs.plain_seconds == 2.0
    assert costs.drafting("model").at(4) == pytest.approx(0.4)
    assert costs.further_tokens.at(4) == pytest.approx(0.8)


def test_a_change_of_size_is_what_a_pass_takes_longer_than_the_next_of_its_size():
    back = [a_round(seconds=3.0), a_round(seconds=2.0)]
    assert timed(*OPENING).change == PRIOR_CHANGE
    assert timed(*OPENING, *back).change == pytest.approx(0.5)
    # A pass over five tokens costs 1.8 plain rounds, and with the change a third more.
    again = [a_round(4, 2, seconds=4.8), a_round(4, 2, seconds=3.6)]
    assert timed(*OPENING, *back, *again).change == pytest.approx((0.5 + 0.6) / 2, abs=0.02)


def test_a_round_that_changed_the_size_counts_without_the_change():
    back = [a_round(seconds=3.0), a_round(seconds=2.0)]
    costs = timed(*OPENING[:2], *OPENING[2:3], *back, a_round(4, 2, seconds=4.0))
    assert costs.further_tokens.at(4) == pytest.approx(4.0 / 2.0 - 1.0 - 0.5)


def test_a_pass_that_was_filled_up_counts_with_its_size():
    filled = [a_round(2, 1, seconds=FIRST, size=5), a_round(2, 1, seconds=3.0, size=5)]
    costs = timed(a_round(), a_round(), *filled)
    assert costs.further_tokens.at(4) == pytest.approx(2.0)


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
