"""Distributions over the vocabulary, sparse if most probabilities are 0, and random decisions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Probs = NDArray[np.float64]

SUM_RUN = 128
"""Probabilities in one run of partial sums."""

BELOW_ONE = float(np.nextafter(1.0, 0.0))

ALL: Probs = np.ones(1)
"""The probability of the only token of a one-hot distribution."""


@dataclass(frozen=True, eq=False)
class Distribution:
    """The probability of every token; sparse if most of them are 0.

    ids: token ids [n], ascending, or None for the whole vocabulary. probs: their probabilities
    [n], none negative, with sum 1; tokens that are not in `ids` have probability 0.
    """

    ids: Ids | None
    probs: Probs

    def prob(self, token: int) -> float:
        """The probability of one token of the vocabulary."""
        if self.ids is None:
            return float(self.probs[token])
        index = int(self.ids.searchsorted(token))
        if index < len(self.ids) and self.ids[index] == token:
            return float(self.probs[index])
        return 0.0

    def token(self, index: int) -> int:
        """The id of the token whose probability is `probs[index]`."""
        return index if self.ids is None else int(self.ids[index])


def one_hot(token: int) -> Distribution:
    """All of the probability on one token: a greedy draft, or prompt lookup."""
    return Distribution(np.array([token], dtype=np.int64), ALL)


def excess(main: Distribution, draft: Distribution, ratio: float = 1.0) -> Probs:
    """The positive part of ratio * main - draft, [n] as `main.probs`.

    Both are over the same vocabulary. ratio: from 0 to 1.
    """
    if draft.ids is None:
        probs = draft.probs if main.ids is None else draft.probs[main.ids]
    elif main.ids is None:
        probs = np.zeros_like(main.probs)
        probs[draft.ids] = draft.probs
    else:
        indices = np.searchsorted(draft.ids, main.ids).clip(max=len(draft.ids) - 1)
        probs = np.where(draft.ids[indices] == main.ids, draft.probs[indices], 0.0)
    return np.maximum(ratio * main.probs - probs, 0.0)


def residual(main: Distribution, draft: Distribution, ratio: float = 1.0) -> Distribution:
    """The normalized excess, from which the replacement of a rejected draft token is drawn.

    If both distributions are equal, no draft token is ever rejected, and this returns `main`.
    Source: Leviathan et al., section 2.3 (arXiv 2211.17192); with a ratio below 1, Sun et al.,
    algorithm 2 (arXiv 2403.10444).
    """
    if len(main.probs) == 1:  # one-hot
        return main
    rest = excess(main, draft, ratio)
    total = rest.sum()
    return Distribution(main.ids, rest / total) if total > 0 else main


class RandomDecisions:
    """The only two random decisions, of sampling and of verification. Tests enumerate them.

    It has one random generator, made for one generation and never reseeded. Each decision takes one
    number from [0, 1), whatever it is about.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def accept(self, probability: float) -> bool:
        """True with this probability: never at 0, always at 1."""
        return self._generator.random() < probability

    def draw(self, distribution: Distribution) -> int:
        """A token, by inversion of the cumulative sums; never one of probability 0."""
        number = self._generator.random()
        probs, start = distribution.probs, 0
        num_runs = len(probs) // SUM_RUN
        if num_runs > 1:
            # Sums of runs first, then within one of them: that avoids most of the sums. A rest
            # that does not fill a run belongs to the last one.
            runs = probs[: num_runs * SUM_RUN].reshape(num_runs, SUM_RUN).sum(axis=1)
            runs[-1] += probs[num_runs * SUM_RUN :].sum()
            run, number = _invert(runs, number)
            start = run * SUM_RUN
            probs = probs[start:] if run == num_runs - 1 else probs[start : start + SUM_RUN]
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
