"""Corrects a cost curve with the times of actual passes."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from statistics import geometric_mean, median
from typing import Protocol

from ov_specdec.planning.costs.curve import GRID, CostCurve, Role
from ov_specdec.results.stats import StepStats

Progress = Callable[[float], None]
"""Called with the finished fraction of a measurement, 0 to 1."""


class Costs(Protocol):
    """Provides the cost curve of passes."""

    @property
    def curve(self) -> CostCurve:
        """The current curve. Runs no passes."""

    def improve(self) -> None:
        """Measure a missing part, if it is due. Nothing else may use the models."""

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""

    def learn(self, step: StepStats) -> None:
        """Learn from a step without prefill."""


class FixedCurve:
    """A constant curve. Implements `Costs`."""

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve

    def learn(self, step: StepStats) -> None:
        """Nothing to learn."""

    def improve(self) -> None:
        """Nothing to measure."""

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Nothing changes."""


ENOUGH = 15
"""Comparisons whose median corrects a size: it tolerates seven outliers."""

RECENT = 4
"""Last passes of the main model that give the machine's current pace, which changes in seconds."""

STRENGTH = 0.5
"""The exponent of each correction, a damping."""


class LiveCurve(FixedCurve):
    """A measured curve, corrected by the passes that run.

    A pass takes the time of the curve times the machine's current pace, which is common to all
    passes. So passes of one size, and all steps of the draft model, are compared with recent passes
    of other sizes. A common slowdown changes nothing, and a size that runs alone is not corrected.
    """

    def __init__(self, measured: CostCurve) -> None:
        super().__init__(measured)
        self.measured = measured
        # By size of passes of the main model; 0 for the draft model's steps.
        self._factors: dict[int, float] = {}
        self._compared: dict[int, list[float]] = defaultdict(list)
        # Sizes of the last passes, and how many times as long as in the curve.
        self._last: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._last_size = 0

    def learn(self, step: StepStats) -> None:
        """Learn from a step without prefill."""
        done, main, draft = step.main, self.curve.main, self.curve.draft
        drafts = [each for each in step.drafts if each.num_tokens == each.num_sequences]
        if draft is not None and drafts:
            expected = sum(draft.at(each.num_tokens, each.num_sequences) for each in drafts)
            self._compare(0, sum(each.seconds for each in drafts) / expected)
        expected = main.at(done.num_tokens, done.num_sequences)
        if done.num_tokens not in main.static:
            expected += main.change * (done.num_tokens != self._last_size)
            self._last_size = done.num_tokens
        size = min(GRID, key=lambda size: abs(size - done.num_tokens))
        self._compare(size, done.seconds / expected)
        self._last.append((size, done.seconds / expected))

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        self.measured = self.measured.with_static(role, sizes, saved)
        self._correct()

    def _compare(self, size: int, ratio: float) -> None:
        others = [other for last, other in self._last if last != size]
        if not others:
            return
        self._compared[size].append(ratio / median(others))
        if len(self._compared[size]) == ENOUGH:
            factor = median(self._compared.pop(size)) ** STRENGTH
            self._factors[size] = self._factors.get(size, 1.0) * factor
            self._correct()

    def _correct(self) -> None:
        """Multiply the measured curve. The mean of the main model's factors is 1.

        Otherwise two sizes that are compared only with each other could drift together.
        """
        factors = {size: factor for size, factor in self._factors.items() if size}
        mean = geometric_mean(factors.values()) if factors else 1.0
        main, draft = self.measured.main, self.measured.draft
        main = main.times({size: factor / mean for size, factor in factors.items()})
        if draft is not None:
            draft = draft.times(dict.fromkeys(draft.seconds, self._factors.get(0, mean) / mean))
        self.curve = replace(self.measured, main=main, draft=draft)
