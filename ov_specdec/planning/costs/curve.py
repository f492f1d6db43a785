"""Cost curves: seconds of a pass by its tokens and the cached tokens that it reads."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Sizes of measured passes, to which others are padded.

Near the optimum, speed hardly depends on the length, and each size takes time to measure.
"""

LARGER = (24, 32, 48, 64, 96, 128, 192, 256)
"""Sizes of passes over several sequences: two are measured, all are corrected in use."""

GRID = (*SIZES, *LARGER)
"""All sizes of the curve."""

LONGEST = 1024
"""Tokens of the longest distinguished pass: twice the longest chunk of a prefill."""

ROWS = (16, 256, 1024, 4096, 16384, 65536)
"""Rows of the curve, by cached tokens; the first two are measured, the others learnt in use.

From 32 to 200 cached tokens passes of a small model grow by less than they vary.
"""
BORDERS = tuple(math.isqrt(low * high) for low, high in pairwise(ROWS))
SIZE_BORDERS = tuple(math.sqrt(low * high) for low, high in pairwise(GRID))
"""Boundaries between rows and sizes: geometric means."""

MOST_SAVED = 0.5
"""Maximum plausible saving of a static shape, in cheapest passes: measured 0.13 to 0.25."""

Role = Literal["main", "draft"]
"""The model of a pass."""


@dataclass(frozen=True)
class PassCurve:
    """Passes of one model.

    seconds: by cached tokens, then by tokens in the pass. change: extra seconds of a pass with
    another size than the previous one, because OpenVINO prepares the model for new shapes.
    per_sequence: seconds that each sequence beyond the first adds to a pass over as many tokens.
    saved: seconds that a static shape saves at any size, since OpenVINO need not prepare it.
    static: sizes of current static shapes, which have no change cost.
    """

    seconds: Mapping[int, Mapping[int, float]]
    change: float = 0.0
    per_sequence: float = 0.0
    saved: float = 0.0
    static: frozenset[int] = frozenset()

    def at(self, num_tokens: int, num_cached: int, num_sequences: int = 1) -> float:
        """Seconds of a pass over `num_tokens` that reads `num_cached`; positive.

        Linear between measurements, and beyond the largest pass. Beyond the last row of cached
        tokens it is constant: the growth over a short range is below the machine's variation.
        """
        low, high, share = self._between(num_cached)
        size = min(num_tokens, LONGEST)
        seconds = float(low[size]) + share * float(high[size] - low[size])
        return seconds + self.per_sequence * (num_sequences - 1) - self.saved_at(num_tokens)

    def saved_at(self, num_tokens: int) -> float:
        """Seconds that the static shape of a size saves; 0 if there is none."""
        return self._saved if num_tokens in self.static else 0.0

    @cached_property
    def _saved(self) -> float:
        """`saved`, bounded so that a disturbed trial cannot make passes free."""
        return min(self.saved, MOST_SAVED * min(min(row.values()) for row in self.seconds.values()))

    def changes(self, first: int, last: int, prepared: int, home: int) -> NDArray[np.floating]:
        """Extra seconds by changes of size for passes over `first` to `last` tokens, and back.

        prepared: the size of the last pass. home: the home size, to which later passes return; many
        passes share the change to it.
        """
        back = 0.0 if home in self.static else self.change
        result = np.full(last - first + 1, self.change + back)
        for size, seconds in ((prepared, back), *((size, 0.0) for size in (home, *self.static))):
            if first <= size <= last:
                result[size - first] = seconds
        return result

    def by_size(
        self, first: int, last: int, num_cached: int, num_sequences: int = 1
    ) -> NDArray[np.floating]:
        """Seconds of passes over `first` to `last` tokens; constant beyond the longest."""
        result = self.dynamic(first, last, num_cached, num_sequences)
        for size in self.static:
            if first <= size <= last:
                result[size - first] -= self._saved
        return result

    def dynamic(
        self, first: int, last: int, num_cached: int, num_sequences: int = 1
    ) -> NDArray[np.floating]:
        """The same without static shapes."""
        low, high, share = self._between(num_cached)
        sizes = slice(min(first, LONGEST), last + 1)
        result: NDArray[np.floating] = low[sizes] + share * (high[sizes] - low[sizes])
        result += self.per_sequence * (num_sequences - 1)
        if last > LONGEST:
            return np.pad(result, (0, last - first + 1 - len(result)), "edge")
        return result

    def _between(self, num_cached: int) -> tuple[NDArray[np.floating], NDArray[np.floating], float]:
        """The rows on both sides of `num_cached`, and the weight of the second."""
        cached, rows = self._rows
        high = min(bisect_left(cached, num_cached), len(cached) - 1)
        low = max(high - 1, 0)
        if num_cached >= cached[high] or low == high:
            return rows[high], rows[high], 0.0
        share = max(num_cached - cached[low], 0) / (cached[high] - cached[low])
        return rows[low], rows[high], share

    @cached_property
    def _rows(self) -> tuple[list[int], list[NDArray[np.floating]]]:
        """Cached tokens, ascending, and for each the seconds by tokens in the pass, from 0."""
        cached = sorted(self.seconds)
        return cached, [_line(sorted(self.seconds[row].items())) for row in cached]

    def corrected(self, num_tokens: int, num_cached: int, factor: float) -> "PassCurve":
        """The curve with one measurement multiplied; a missing one is interpolated first."""
        place = nearest_row(num_cached)
        row = dict(self.seconds.get(place) or self._row(place))
        row[num_tokens] = factor * self.at(num_tokens, place) + self.saved_at(num_tokens)
        return replace(self, seconds={**self.seconds, place: row})

    def _row(self, num_cached: int) -> dict[int, float]:
        """The measurements of dynamic passes in a row."""
        seconds = self.dynamic(0, SIZES[-1], num_cached)
        return {size: float(seconds[size]) for size in SIZES}

    def _scaled(self, factor: float) -> "PassCurve":
        """The measurements as a machine of another pace would make them."""
        rows = {
            cached: {size: factor * seconds for size, seconds in row.items()}
            for cached, row in self.seconds.items()
        }
        return PassCurve(
            rows, factor * self.change, factor * self.per_sequence, self.saved, self.static
        )

    def _slowdown(self, other: "PassCurve") -> float:
        """How many times as long passes took here as in `other`, in the median of common ones.

        A single one would do on a quiet machine. If it was disturbed, all others would seem short.
        """
        ratios = [
            seconds / other.seconds[cached][size]
            for cached, row in self.seconds.items()
            for size, seconds in row.items()
            if size in other.seconds.get(cached, ())
        ]
        return median(ratios) if ratios else 1.0

    def least(self, other: "PassCurve") -> "PassCurve":
        """The minimum of two measurements: disturbances only lengthen passes.

        A common slowdown of one measurement is removed first: otherwise sizes that only that one
        has would look expensive.
        """
        slowdown = self._slowdown(other)
        one, two = self._scaled(min(1.0 / slowdown, 1.0)), other._scaled(min(slowdown, 1.0))
        rows: dict[int, dict[int, float]] = {}
        for cached, measured in (*one.seconds.items(), *two.seconds.items()):
            row = rows.setdefault(cached, {})
            for size, seconds in measured.items():
                row[size] = min(seconds, row.get(size, seconds))
        return PassCurve(
            rows,
            _least_known(one.change, two.change),
            _least_known(one.per_sequence, two.per_sequence),
            other.saved or self.saved,
            other.static,
        )


@dataclass(frozen=True)
class CostCurve:
    """The costs of a round: passes of the main model, and of the draft model if there is one.

    It excludes lookups in the text, which take some ten microseconds, and run before the planner.
    sweeps: how often all sizes were timed, or as many of them as time allowed; 0: nominal costs.
    """

    main: PassCurve
    draft: PassCurve | None = None
    sweeps: int = 0

    def least(self, other: "CostCurve") -> "CostCurve":
        """The minimum of two measurements of the same models."""
        draft = self.draft and other.draft and self.draft.least(other.draft)
        return CostCurve(self.main.least(other.main), draft, self.sweeps + other.sweeps)

    def with_static(self, role: Role, sizes: frozenset[int], saved: float) -> "CostCurve":
        """The curve with static shapes of these sizes, each of which saves `saved` seconds."""
        passes = self.main if role == "main" else self.draft
        if passes is None:
            return self
        passes = replace(passes, static=sizes, saved=saved)
        return replace(self, main=passes) if role == "main" else replace(self, draft=passes)

    def drafting(self, num_cached: int) -> tuple[float, float]:
        """Seconds of drafting: per draft token, and once after a fully accepted draft.

        The first pass then feeds two tokens, the last draft token and the main model's own.
        """
        if self.draft is None:
            return 0.0, 0.0
        step, pair = self.draft.at(1, num_cached), self.draft.at(2, num_cached)
        changes = len({1, 2} - self.draft.static) * self.draft.change
        return step, pair - step + changes


def nearest_size(num_tokens: int) -> int:
    """The size nearest to `num_tokens`."""
    return GRID[bisect_left(SIZE_BORDERS, num_tokens)]


def nearest_row(num_cached: int) -> int:
    """The row nearest to `num_cached`."""
    return ROWS[bisect_left(BORDERS, num_cached)]


def _least_known(one: float, other: float) -> float:
    """The minimum of two measurements, of which 0 is none."""
    return min(one or other, other or one)


def _line(points: Sequence[tuple[int, float]]) -> NDArray[np.floating]:
    """Linear interpolation by x from 0; constant before the first point, mean slope after the last.

    The slope of the last two points would be too low: 0.6 ms a token on the embedded pair, where
    passes over 16 sequences take 1.2, and the mean slope is 0.9.
    """
    xs = np.arange(LONGEST + 1)
    result: NDArray[np.floating] = np.interp(xs, [x for x, _ in points], [y for _, y in points])
    (low, below), (high, above) = points[0], points[-1]
    if high > low:
        result += np.maximum(xs - high, 0) * max((above - below) / (high - low), 0.0)
    return result


def _rising(step: float) -> dict[int, float]:
    return {size: 1.0 + step * (size - 1) for size in SIZES}


NOMINAL = CostCurve(PassCurve({ROWS[0]: _rising(0.1)}), PassCurve({ROWS[0]: {1: 0.1}}))
"""The nominal cost curve, in plain passes, for draft lengths that must not depend on measurements.

A draft token and each further token cost a tenth of a plain pass, between pairs measured with AMX
(0.08 and 0.06 for the embedded pair) and without (0.09 and 0.13).
"""
