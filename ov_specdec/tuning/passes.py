"""What passes of a model cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from ov_specdec.cache.session import Session

SIZES = (1, 2, 4, 8, 16)
"""Tokens of the passes that are timed."""

CONTEXT = 128
"""Tokens in the KV cache while passes are timed, or fewer where the model has no room for them."""

REPEATS = 3, 5
"""Passes of a size that are timed: at least and at most."""

ENOUGH = 0.4
"""Seconds after which no more than the least is measured: what is slow is measured well enough."""


@dataclass(frozen=True)
class PassCosts:
    """Seconds of a pass over so many tokens, and of the prefill before them."""

    seconds: Mapping[int, float]
    prefill: float

    def at(self, num_tokens: int) -> float:
        """Seconds of a pass over any number of tokens up to the largest, by interpolation."""
        return float(np.interp(num_tokens, list(self.seconds), list(self.seconds.values())))


def measure_passes(session: Session, token: int) -> PassCosts:
    """Time passes over `token`, after a warm-up of each; medians."""
    context = [token] * max(min(CONTEXT, session.max_length - max(SIZES)), 1)
    prefill = _time_prefill(session, context)
    if prefill < ENOUGH:  # else the warm-up is a small part of it
        prefill = _time_prefill(session, context)
    return PassCosts({size: _time_pass(session, token, size) for size in SIZES}, prefill)


def _time_prefill(session: Session, context: list[int]) -> float:
    session.reset()
    start = perf_counter()
    session.forward(context, 1)
    return perf_counter() - start


def _time_pass(session: Session, token: int, size: int) -> float:
    length, times = session.length, list[float]()
    least, most = REPEATS
    while len(times) <= least or (len(times) <= most and sum(times) < ENOUGH):
        start = perf_counter()
        session.forward([token] * size)
        times.append(perf_counter() - start)
        session.rollback(length)
    return median(times[1:])
