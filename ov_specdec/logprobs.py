"""Log-probabilities of tokens and of the likeliest in their places, before or after processors."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ov_specdec.logits import Logits

MIN_LOGPROB = -9999.0
"""Stands for the logarithm of 0 in JSON, which has no infinity; as in OpenAI's reference."""


@dataclass(frozen=True)
class TokenLogprobs:
    """What the main model says of one place in the text.

    token_id: the token that is there. logprob: natural logarithm of its probability; None at the
    first token of a prompt, which nothing comes before. top: the most likely tokens of that place
    and theirs, the most likely first.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


def token_logprobs(
    logits: Iterable[Logits], tokens: Sequence[int], num_top: int
) -> list[TokenLogprobs]:
    """Of each token, by the row of logits [vocab] that scores its place.

    logits: as many rows as there are tokens, or more. num_top: how many of the most likely tokens
    to name; 0 for none.
    """
    found = []
    for row, token in zip(logits, tokens, strict=False):
        top = _greatest(row, num_top)
        peak = row.max()
        # Twice as fast as in 64 bits, and as exact where the sum is taken in them.
        total = float(peak) + math.log(np.exp(row - peak).sum(dtype=np.float64))
        logprobs = [(int(i), float(row[i]) - total) for i in (token, *top)]
        found.append(TokenLogprobs(*logprobs[0], tuple(logprobs[1:])))
    return found


def finite(logprob: float) -> float:
    """A log-probability that JSON has a number for."""
    return max(logprob, MIN_LOGPROB)


def _greatest(values: Logits, count: int) -> NDArray[np.int64]:
    """The places of the `count` greatest values, the greatest first."""
    if not count:
        return np.empty(0, np.int64)
    places = np.argpartition(values, -count)[-count:] if count < len(values) else None
    if places is None:
        places = np.arange(len(values))
    order: NDArray[np.int64] = places[np.lexsort((places, -values[places]))]
    return order
