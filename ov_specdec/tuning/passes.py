"""Measures the cost of a model's forward passes."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone

SIZES = (1, 2, 4, 8, 16)
"""Sizes of the timed passes, in tokens."""

CONTEXT = 128
"""Tokens in the KV cache during timed passes, or fewer if the context is shorter."""

REPEATS = 3, 5
"""Minimum and maximum number of timed passes of each size."""

ENOUGH = 0.4
"""Seconds after which only the minimum is timed: slow passes need fewer samples."""


@dataclass(frozen=True)
class PassCosts:
    """Seconds of a pass by its number of tokens, and of the prefill before it."""

    seconds: Mapping[int, float]
    prefill: float


def measure_passes(model: Runner, token: int) -> PassCosts:
    """The median times of passes over `token`, each after a warm-up."""
    context = [token] * max(min(CONTEXT, model.max_length - max(SIZES)), 1)
    prefill = _time_prefill(model, context)
    if prefill < ENOUGH:  # else the warm-up is a small part of it
        prefill = _time_prefill(model, context)
    cache = CachedSequence(model)
    seconds = {size: _time_pass(cache, context, size) for size in SIZES}
    cache.discard()
    return PassCosts(seconds, prefill)


def _time_prefill(model: Runner, context: list[int]) -> float:
    cache = CachedSequence(model, namespace=object())
    start = perf_counter()
    alone(cache.advance(context, num_rows=1))
    seconds = perf_counter() - start
    cache.discard()
    return seconds


def _time_pass(cache: CachedSequence, context: list[int], size: int) -> float:
    times = list[float]()
    least, most = REPEATS
    while len(times) <= least or (len(times) <= most and sum(times) < ENOUGH):
        start = perf_counter()
        alone(cache.advance(context, context[:1] * (size - 1)))
        times.append(perf_counter() - start)
    return median(times[1:])
