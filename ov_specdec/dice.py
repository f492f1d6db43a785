"""Where chance comes in: the only two random decisions of sampling and of its verification."""

from typing import Protocol

import numpy as np

from ov_specdec.distribution import Distribution


class Dice(Protocol):
    """Takes random decisions. The tests put one in its place that tries them all."""

    def accept(self, probability: float) -> bool:
        """True with the given probability, from 0 to 1."""
        ...

    def draw(self, distribution: Distribution) -> int:
        """A token, with the probability that the distribution gives it."""
        ...


class RandomDice:
    """Decides by one random generator, which is made for one generation and never seeded again.

    Implements `Dice`. Each decision takes one number from [0, 1), whatever it is about.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def accept(self, probability: float) -> bool:
        """Never at probability 0, always at 1."""
        return self._generator.random() < probability

    def draw(self, distribution: Distribution) -> int:
        """By inversion of the cumulative sums; never a token of probability 0."""
        cumulative = distribution.probs.cumsum()
        # Rounding may end the sums a little under 1: the point is set within what they span.
        point = self._generator.random() * cumulative[-1]
        return distribution.token(int(np.searchsorted(cumulative, point, side="right")))
