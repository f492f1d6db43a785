"""The only two random decisions, to accept and to draw, of sampling and of verification."""

from typing import Protocol

import numpy as np

from ov_specdec.sampling.distribution import Distribution, Probs

RUN = 128
"""Probabilities in one run of partial sums."""

BELOW_ONE = float(np.nextafter(1.0, 0.0))


class RandomSource(Protocol):
    """Takes random decisions. Tests replace it with an enumeration of all of them."""

    def accept(self, probability: float) -> bool:
        """True with the given probability, from 0 to 1."""

    def draw(self, distribution: Distribution) -> int:
        """A token, with the probability that the distribution gives it."""


class NumpyRandomSource:
    """Decides by one random generator, made for one generation and never reseeded.

    Implements `RandomSource`. Each decision takes one number from [0, 1), whatever it is about.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def accept(self, probability: float) -> bool:
        """Never at probability 0, always at 1."""
        return self._generator.random() < probability

    def draw(self, distribution: Distribution) -> int:
        """By inversion of the cumulative sums; never a token of probability 0."""
        number = self._generator.random()
        probs, start = distribution.probs, 0
        num_runs = len(probs) // RUN
        if num_runs > 1:
            # Sums of runs first, then within one of them: that avoids most of the sums. A rest
            # that does not fill a run belongs to the last one.
            runs = probs[: num_runs * RUN].reshape(num_runs, RUN).sum(axis=1)
            runs[-1] += probs[num_runs * RUN :].sum()
            run, number = _invert(runs, number)
            start = run * RUN
            probs = probs[start:] if run == num_runs - 1 else probs[start : start + RUN]
        return distribution.token(start + _invert(probs, number)[0])


def _invert(weights: Probs, number: float) -> tuple[int, float]:
    """The index whose share of [0, 1) holds a number, and the position within that share.

    Shares are proportional to the weights; weight 0 has none.
    """
    cumulative = weights.cumsum()
    point = number * float(cumulative[-1])
    index = int(cumulative.searchsorted(point, side="right"))
    below = float(cumulative[index - 1]) if index else 0.0
    return index, min((point - below) / float(weights[index]), BELOW_ONE)
