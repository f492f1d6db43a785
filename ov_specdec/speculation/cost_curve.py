"""What n more of something cost, from measurements at some n."""

from bisect import bisect_left
from collections import defaultdict, deque
from statistics import median

MEMORY = 7
"""Measurements of one number that its median goes back."""

STALE = 64
"""Rounds after which a measurement may be forgotten."""

SUSPECT = 1.2
"""How much more than the others let expect a number must cost, to be forgotten."""


class CostCurve:
    """Costs measured at some numbers n, and from them those at all others. n = 0 costs nothing.

    Between two numbers the cost is interpolated, beyond the largest it goes on with the slope of a
    straight line through all. Medians, because a machine that is busy with something else makes
    single measurements far too long.
    """

    def __init__(self) -> None:
        self._measured: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=MEMORY))
        self._rounds_since: dict[int, int] = {}
        self._points: list[tuple[int, float]] = [(0, 0.0)]
        self.slope = 0.0
        """What one more costs; never negative."""

    def __bool__(self) -> bool:
        return bool(self._measured)

    def add(self, n: int, cost: float) -> None:
        """A measurement; n is at least 1."""
        self._measured[n].append(cost)
        self._rounds_since[n] = 0
        self._draw()

    def end_round(self) -> None:
        """Let a round pass, and forget numbers that seemed expensive long ago.

        What seems expensive is not chosen, and so not measured again; it may have been the machine.
        """
        for n in list(self._rounds_since):
            self._rounds_since[n] += 1
            if self._rounds_since[n] == STALE and len(self._measured) > 1:
                self._recheck(n)

    def _recheck(self, n: int) -> None:
        cost, measured = self.at(n), self._measured.pop(n)
        self._draw()
        if cost > SUSPECT * self.at(n):
            del self._rounds_since[n]
        else:
            self._measured[n] = measured
            self._draw()

    def _draw(self) -> None:
        self._points = [(0, 0.0)]
        for number in sorted(self._measured):
            # More never costs less.
            highest = max(median(self._measured[number]), self._points[-1][1])
            self._points.append((number, highest))
        self.slope = self._fit()

    def at(self, n: int) -> float:
        """The cost of n."""
        place = bisect_left(self._points, (n, 0.0))
        if place == len(self._points):
            last, cost = self._points[-1]
            return cost + (n - last) * self.slope
        if place == 0:
            return 0.0
        (low, below), (high, above) = self._points[place - 1], self._points[place]
        return below + (above - below) * (n - low) / (high - low)

    def _fit(self) -> float:
        """The slope of least squares over the medians, each with the weight of its measurements."""
        points = [(n, cost, len(self._measured[n])) for n, cost in self._points[1:]]
        total = sum(weight for _, _, weight in points)
        mean_n = sum(n * weight for n, _, weight in points) / total
        mean = sum(cost * weight for _, cost, weight in points) / total
        spread = sum((n - mean_n) ** 2 * weight for n, _, weight in points)
        rise = sum((n - mean_n) * (cost - mean) * weight for n, cost, weight in points)
        # A line that would begin below nothing begins at nothing.
        return min(rise / spread, mean / mean_n) if spread else mean / mean_n
