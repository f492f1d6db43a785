"""What n more of something cost: a straight line through medians."""

from collections import defaultdict, deque
from statistics import median

MEMORY = 7
"""Measurements of one number that its median goes back."""


class CostLine:
    """Costs measured at some numbers n, and from them those at all others: start + n * slope.

    Neither start nor slope is negative, and n = 0 costs nothing. Medians, because a machine that
    is busy with something else makes single measurements far too long.
    """

    def __init__(self) -> None:
        self._measured: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=MEMORY))
        self.start = 0.0
        self.slope = 0.0

    def __bool__(self) -> bool:
        return bool(self._measured)

    def add(self, n: int, cost: float) -> None:
        """A measurement; n is at least 1."""
        self._measured[n].append(cost)
        self._fit()

    def at(self, n: int) -> float:
        """The cost of n."""
        return self.start + n * self.slope if n else 0.0

    def _fit(self) -> None:
        """Least squares over the medians, each with the weight of its measurements."""
        points = [(n, median(costs), len(costs)) for n, costs in self._measured.items()]
        total = sum(weight for _, _, weight in points)
        mean_n = sum(n * weight for n, _, weight in points) / total
        mean = sum(cost * weight for _, cost, weight in points) / total
        spread = sum((n - mean_n) ** 2 * weight for n, _, weight in points)
        rise = sum((n - mean_n) * (cost - mean) * weight for n, cost, weight in points)
        self.slope = max(rise / spread, 0.0) if spread else mean / mean_n
        self.start = mean - self.slope * mean_n
        if self.start < 0.0:
            squares = sum(n * n * weight for n, _, weight in points)
            self.slope = sum(n * cost * weight for n, cost, weight in points) / squares
            self.start = 0.0
