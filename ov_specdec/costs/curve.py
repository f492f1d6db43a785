"""Seconds of a pass by the tokens in it and the cached tokens that it reads."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Tokens of the passes that are measured, and to which others are padded.

The best length is flat: between two of these no size of the measured curves (AMX and AVX2, 28 M to
1 B parameters) yields more than 2 % above the better neighbour, and each size to choose among
takes time to measure.
"""


@dataclass(frozen=True)
class PassCurve:
    """Passes of one model.

    seconds: by cached tokens, then by tokens in the pass; each row has the same sizes. change:
    seconds that a pass takes longer if it has another size than the one before, because OpenVINO
    prepares for the new shapes.
    """

    seconds: Mapping[int, Mapping[int, float]]
    change: float = 0.0

    def at(self, num_tokens: int, num_cached: int) -> float:
        """Seconds of a pass over `num_tokens` that reads `num_cached`; linear between measurements.

        Beyond them it goes on with the last slope over tokens, which never falls, and over cached
        tokens as the last two rows do.
        """
        rows = [(cached, _at(row, num_tokens)) for cached, row in sorted(self.seconds.items())]
        return max(_line(rows, num_cached), min(value for _, value in rows))

    def nearest(self, num_cached: int) -> int:
        """The row that tells most about passes that read `num_cached`."""
        return min(self.seconds, key=lambda cached: abs(cached - num_cached))

    def corrected(self, num_tokens: int, num_cached: int, factor: float) -> "PassCurve":
        """The curve with one measurement multiplied, or with all of them if there is none for it."""
        cached = self.nearest(num_cached)
        row = dict(self.seconds[cached])
        row[num_tokens] = factor * _at(row, num_tokens)
        return PassCurve({**self.seconds, cached: row}, self.change)


@dataclass(frozen=True)
class CostCurve:
    """What a round is made of: passes of the main model, and of the draft model where there is one.

    A lookup in the text is no part of it: it takes 10 microseconds, and has been made before the
    planner is asked how many of its tokens to take.
    """

    main: PassCurve
    draft: PassCurve | None = None


def _at(row: Mapping[int, float], num_tokens: int) -> float:
    points = sorted(row.items())
    return max(_line(points, num_tokens), points[-1][1] if num_tokens > points[-1][0] else 0.0)


def _line(points: list[tuple[int, float]], x: float) -> float:
    """Linear interpolation, and beyond the points extrapolation from the outermost two."""
    if len(points) == 1:
        return points[0][1]
    place = min(max(bisect_left(points, (x, 0.0)), 1), len(points) - 1)
    (low, below), (high, above) = points[place - 1], points[place]
    if x < low:
        return below
    return below + (above - below) * (x - low) / (high - low)


def _rising(step: float) -> dict[int, float]:
    return {size: 1.0 + step * (size - 1) for size in SIZES}


NOMINAL = CostCurve(PassCurve({0: _rising(0.1)}), PassCurve({0: {1: 0.1, 2: 0.1}}))
"""An imagined machine in plain passes, for runs whose draft lengths must not follow the clock.

A tenth of a plain pass for a candidate and for a token more lies between what was measured of
pairs with AMX (0.08 and 0.06 of the embedded pair) and without (0.09 and 0.13).
"""
