"""The enumeration of all that can happen."""

import numpy as np
import pytest

from ov_specdec.sampling.distribution import Distribution, RandomSource
from tests.support.enumeration import enumerate_outcomes


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
