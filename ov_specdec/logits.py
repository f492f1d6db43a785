"""Rows of logits: the greatest of one, or an error where it gives no distribution."""

import math

import numpy as np
from numpy.typing import NDArray

from ov_specdec.errors import DeadEndError, LogitsError

Logits = NDArray[np.float32]


def most_likely(row: Logits) -> int:
    """The most likely token of one row of logits [vocab]; the lowest id of those that tie.

    Raises `LogitsError` for a row that gives no distribution.
    """
    # Where a row holds NaN, argmax gives its place.
    token = int(row.argmax())
    _check_peak(float(row[token]))
    return token


def check_row(row: Logits) -> float:
    """The greatest logit of a row [vocab]; `LogitsError` if the row gives no distribution."""
    peak = float(row.max())
    _check_peak(peak)
    return peak


def _check_peak(peak: float) -> None:
    if peak == -math.inf:
        raise DeadEndError(
            "no token may follow: all logits are -inf; let the options forbid fewer tokens"
        )
    if not math.isfinite(peak):
        raise LogitsError(f"logits with {peak} give no distribution; look for it in the model")
