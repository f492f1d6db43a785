"""Distributions over the vocabulary, sparse where most probabilities are 0."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Probs = NDArray[np.float64]

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

    @property
    def is_one_hot(self) -> bool:
        """Whether one token has probability 1: the only one of a sparse distribution."""
        return len(self.probs) == 1

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
    return np.maximum(ratio * main.probs - _probs_at(draft, main), 0.0)


def residual(main: Distribution, draft: Distribution, ratio: float = 1.0) -> Distribution:
    """The normalized excess, from which the replacement of a rejected draft token is drawn.

    If both distributions are equal, no draft token is ever rejected, and this returns `main`.
    Source: Leviathan et al., section 2.3 (arXiv 2211.17192); with a ratio below 1, Sun et al.,
    algorithm 2 (arXiv 2403.10444).
    """
    if main.is_one_hot:
        return main
    rest = excess(main, draft, ratio)
    total = rest.sum()
    return Distribution(main.ids, rest / total) if total > 0 else main


def _probs_at(draft: Distribution, main: Distribution) -> Probs:
    """The draft's probabilities of the tokens of `main.probs`, in its order."""
    if draft.ids is None:
        return draft.probs if main.ids is None else draft.probs[main.ids]
    if main.ids is None:
        probs = np.zeros_like(main.probs)
        probs[draft.ids] = draft.probs
        return probs
    indices = np.searchsorted(draft.ids, main.ids).clip(max=len(draft.ids) - 1)
    return np.where(draft.ids[indices] == main.ids, draft.probs[indices], 0.0)
