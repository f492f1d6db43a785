"""Measures what passes cost, in turns and in a given time."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.costs.curve import ROWS, SIZES, CostCurve, PassCurve

ENOUGH = 5
"""Sweeps over all sizes: medians of five bear two that were disturbed."""

FILLER = 0
"""The id that passes are timed with: what it means changes nothing."""

FIRST_SWEEP = (16, 1, 4, 1, 4, 8, 2, 12, 6, 3)
"""The sizes whose absence would cost most come first; two of them twice, to see a change of size.

A first pass of a size is longer than any other, so that it shows no change.
"""


class PassTimes:
    """The passes of one model that were timed, in a KV cache that keeps what it holds."""

    def __init__(self, cache: CachedSequence, sizes: tuple[int, ...]) -> None:
        self._cache = cache
        self._held = cache.tokens
        self._tokens = self._held or [FILLER]
        self._sizes = sizes
        # By cached tokens and size: the first of two passes, and the second.
        self._times: dict[int, dict[int, list[tuple[float, float]]]] = defaultdict(dict)

    @property
    def sweeps(self) -> list[tuple[int, ...]]:
        """The sizes to time, in turns."""
        first = tuple(size for size in FIRST_SWEEP if size in self._sizes)
        return [first, *[self._sizes] * (ENOUGH - 1)]

    def may_grow(self, num_cached: int, seconds: float) -> bool:
        """Whether so many tokens can be cached, and read in the time."""
        largest = self._sizes[-1]
        fits = num_cached + largest <= self._cache.max_length
        return fits and self._curve_row(ROWS[0])[largest] * num_cached / largest < seconds

    def grow(self, num_cached: int) -> None:
        """Have at least so many tokens cached."""
        self._tokens += [FILLER] * (num_cached - len(self._tokens))
        self._cache.advance(self._tokens, num_rows=1)

    def forget(self) -> None:
        """Have cached what was before."""
        if self._held:
            self._cache.begin(self._held)
        else:
            self._cache.clear()

    def time(self, row: int, size: int) -> None:
        """Time two passes of a size: the first one after a change, the second one not."""
        first, second = self._pass(size), self._pass(size)
        self._times[row].setdefault(size, []).append((first, second))

    def _pass(self, size: int) -> float:
        start = perf_counter()
        # One row for the last token and each candidate: these are fed, whatever is cached.
        self._cache.advance(self._tokens, [FILLER] * (size - 1))
        return perf_counter() - start

    def curve(self) -> PassCurve:
        """What was measured."""
        changes = [
            first - second
            for sizes in self._times.values()
            for times in sizes.values()
            for first, second in times[1:]
        ]
        change = max(median(changes), 0.0) if changes else 0.0
        return PassCurve({row: self._curve_row(row) for row in self._times}, change)

    def _curve_row(self, row: int) -> dict[int, float]:
        return {size: _typical(times) for size, times in sorted(self._times[row].items())}


def _typical(times: list[tuple[float, float]]) -> float:
    """The median of second passes; of few, the least of all: what disturbs a pass lengthens it."""
    return median(second for _, second in times) if len(times) > 2 else min(map(min, times))


def measure(
    main: CachedSequence,
    draft: CachedSequence | None,
    seconds: float,
    progress: Callable[[float], None] | None = None,
) -> CostCurve:
    """The cost curve of a main and a draft model, in about `seconds`; at least four sizes.

    What is not measured is interpolated. What the KV caches hold they hold afterwards too.
    progress: told of the share of the work or time that has passed.
    """
    start = perf_counter()
    models = [PassTimes(main, SIZES)]
    if draft is not None:
        models.append(PassTimes(draft, DRAFT_SIZES))
    for row in ROWS[:2]:
        left = seconds - (perf_counter() - start)
        if row != ROWS[0] and not all(model.may_grow(row, left / 4) for model in models):
            break
        for model in models:
            model.grow(row)
        for done, (model, size) in enumerate(_turns(models)):
            spent = perf_counter() - start
            if spent > seconds and (done >= LEAST or row != ROWS[0]):
                break
            if progress is not None:
                progress(min(spent / seconds, 1.0))
            model.time(row, size)
    for model in models:
        model.forget()
    return CostCurve(*(model.curve() for model in models))


DRAFT_SIZES = (1, 2, 16)
"""Passes of a draft model: a step, one that also feeds the last accepted candidate, and reading."""

LEAST = 8
"""Passes without which a curve would be none, whatever they take: 16, 1, 4 and 8 of the main."""


def _turns(models: list[PassTimes]) -> Iterator[tuple[PassTimes, int]]:
    """Sweeps of all models in turns, so that a change of the machine's pace meets all sizes."""
    for sweeps in zip(*(model.sweeps for model in models), strict=True):
        for model, sweep in zip(reversed(models), reversed(sweeps), strict=True):
            for size in sweep:
                yield model, size
