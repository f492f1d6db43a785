"""What passes of a model cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from ov_specdec.session import Session, catch_up

SIZES = (1, 2, 4, 8, 16)
"""Tokens of the passes that are timed."""

CONTEXT = 256
"""Tokens in the KV cache while passes are timed, or fewer where the model has no room for them."""

REPEATS = 5


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
    session.reset()
    catch_up(session, context)
    session.reset()
    start = perf_counter()
    catch_up(session, context)
    prefill = perf_counter() - start
    return PassCosts({size: _time_pass(session, token, size) for size in SIZES}, prefill)


def _time_pass(session: Session, token: int, size: int) -> float:
    length, times = session.length, []
    for _ in range(1 + REPEATS):
        start = perf_counter()
        session.forward([token] * size)
        times.append(perf_counter() - start)
        session.rollback(length)
    return median(times[1:])
