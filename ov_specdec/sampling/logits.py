"""Checks of rows of logits: the greatest one, or an error if there is no distribution."""

import math

import numpy as np
from numpy.typing import NDArray

from ov_specdec.errors import DeadEndError, LogitsError

Logits = NDArray[np.float32]


def most_likely(row: Logits) -> int:
    """The most likely token of a row of logits [vocab]; of ties the lowest id.

    Raises `LogitsError` for a row that gives no distribution.
    """
    # If a row contains NaN, argmax returns its index.
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
            "no token may follow, because all logits are -inf: let options forbid fewer tokens"
        )
    if not math.isfinite(peak):
        raise LogitsError(f"logits with {peak} give no distribution: check the model")
