"""The enumeration of all that can happen."""

import numpy as np
import pytest

from ov_specdec.sampling.distribution import Distribution, RandomSource, one_hot
from tests.support.enumeration import enumerate_outcomes

COIN = Distribution(None, np.array([0.25, 0.0, 0.75]))


def test_a_procedure_without_chance_has_one_outcome() -> None:
    assert enumerate_outcomes(lambda random: random.draw(one_hot(7))) == {7: 1.0}


def test_a_draw_has_the_law_of_its_distribution() -> None:
    assert enumerate_outcomes(lambda random: random.draw(COIN)) == {0: 0.25, 2: 0.75}


def test_what_cannot_be_decided_otherwise_is_not_tried() -> None:
    assert enumerate_outcomes(lambda random: (random.accept(0.0), random.accept(1.0))) == {
        (False, True): 1.0
    }


def test_decisions_may_depend_on_earlier_ones_and_outcomes_add_up() -> None:
    calls = []

    def run(random: RandomSource) -> int:
        calls.append(1)
        tosses = 1
        while tosses < 4 and not random.accept(0.5):
            tosses += 1
        return tosses % 2

    assert enumerate_outcomes(run) == {1: 0.625, 0: 0.375}
    assert len(calls) == 4, "once for each way to go"


@pytest.mark.parametrize("probs", [[0.5, 0.4], [1.5, -0.5], [np.nan, 1.0]])
def test_what_is_no_distribution_is_refused(probs: list[float]) -> None:
    with pytest.raises(ValueError, match="no probabilities"):
        enumerate_outcomes(lambda random: random.draw(Distribution(None, np.array(probs))))
