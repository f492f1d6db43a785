"""Rows of logits: log-probabilities, or an error without a distribution."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ov_specdec.errors import DeadEndError, LogitsError

Logits = NDArray[np.float32]


def check_row(row: Logits) -> float:
    """The greatest logit of a row [vocab]; `LogitsError` if the row gives no distribution."""
    peak = float(row.max())
    if peak == -math.inf:
        raise DeadEndError(
            "no token may follow, because all logits are -inf: let options forbid fewer tokens"
        )
    if not math.isfinite(peak):
        raise LogitsError(f"logits with {peak} give no distribution: check the model")
    return peak


MIN_LOGPROB = -9999.0
"""The logarithm of 0 in JSON, which has no infinity, as in OpenAI's reference."""


@dataclass(frozen=True)
class TokenLogprobs:
    """The main model's log-probabilities at one position of the text.

    token_id: the token at this position. logprob: natural logarithm of its probability; None for
    the first token of a prompt. top: the most likely tokens with theirs, the most likely first.
    offset: of an output token, the characters of the output's text before it; those of a stop
    string count.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()
    offset: int = 0


def token_logprobs(
    logits: Iterable[Logits], tokens: Sequence[int], num_top: int
) -> list[TokenLogprobs]:
    """The log-probabilities of tokens.

    logits: rows [vocab], one for each token, or more. num_top: number of most likely tokens at each
    position.
    """
    found = []
    for row, token in zip(logits, tokens, strict=False):
        top = _greatest(row, num_top)
        peak = row.max()
        # Twice as fast as in 64 bits, and as exact if the sum is in 64 bits.
        total = float(peak) + math.log(np.exp(row - peak).sum(dtype=np.float64))
        logprobs = [(int(i), float(row[i]) - total) for i in (token, *top)]
        found.append(TokenLogprobs(*logprobs[0], tuple(logprobs[1:])))
    return found


def finite(logprob: float) -> float:
    """A log-probability that JSON can represent."""
    return max(logprob, MIN_LOGPROB)


def _greatest(values: Logits, count: int) -> NDArray[np.int64]:
    """The indices of the `count` greatest values, the greatest first."""
    if not count:
        return np.empty(0, np.int64)
    indices = np.argpartition(values, -min(count, len(values)))[-count:]
    order: NDArray[np.int64] = indices[np.lexsort((indices, -values[indices]))]
    return order
