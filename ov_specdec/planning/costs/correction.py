"""Corrects a cost curve with the times of actual passes."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ov_specdec.planning.costs.curve import CostCurve, PassCurve, Role, nearest_row, nearest_size
from ov_specdec.stats import PassStats, StepStats

Cell = tuple[Role, int, int]
"""The model, tokens in the pass, and the row of the curve."""

ENOUGH = 15
"""Comparisons whose median corrects a cell: it tolerates seven outliers."""

AT_THE_TIME = 4
"""Last passes of the main model that give the machine's current speed, which changes in seconds."""

STRENGTH = 0.5
"""The exponent of each correction, a damping."""

WORTH_KEEPING = 0.03
"""Minimum change of a correction for the curve to be written again."""


class LiveCurve:
    """A curve that follows the machine. Implements `Costs`, and keeps nothing.

    A pass takes the time of the curve times the machine's current slowdown, which is common to all
    passes. So passes of one size are compared with recent ones of other sizes, and drafting with
    passes of the main model. A common slowdown changes nothing, and a size that runs alone cannot
    be corrected.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        self.is_changed = False
        """Whether it has corrections to keep."""
        # Cells of the last passes of the main model, and how many times as long as in the curve.
        self._last: deque[tuple[Cell, float]] = deque(maxlen=AT_THE_TIME)
        self._compared: dict[Cell, list[float]] = defaultdict(list)
        self._last_size = 0

    def learn(self, step: StepStats) -> None:
        """Learn from a step without prefill; ignores passes after a change of size."""
        done = step.main
        row = nearest_row(done.num_cached)
        self._learn_drafting(step.drafts, row)
        is_prepared = done.num_tokens in (self._last_size, *self.curve.main.static)
        if done.num_sequences > 1 or is_prepared:
            cell: Cell = "main", nearest_size(done.num_tokens), row
            expected = self.curve.main.at(done.num_tokens, done.num_cached, done.num_sequences)
            ratio = done.seconds / expected
            self._compare(cell, ratio)
            self._last.append((cell, ratio))
        if done.num_tokens not in self.curve.main.static:
            self._last_size = done.num_tokens

    def _learn_drafting(self, drafts: Sequence[PassStats], row: int) -> None:
        """Compare each size once; ignores passes after a change of size."""
        draft = self.curve.draft
        if draft is None:
            return
        seconds: dict[int, float] = defaultdict(float)
        expected: dict[int, float] = defaultdict(float)
        for done in drafts:
            if done.num_tokens in draft.static or done.num_tokens == done.num_sequences:
                size = nearest_size(done.num_tokens)
                seconds[size] += done.seconds
                expected[size] += draft.at(done.num_tokens, done.num_cached, done.num_sequences)
        for size in seconds:
            self._compare(("draft", size, row), seconds[size] / expected[size])

    def improve(self) -> None:
        """Do nothing: see `KeptCosts`."""

    def take_up(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        self.curve = self.curve.with_static(role, sizes, saved)
        self.is_changed = True

    def keep(self) -> None:
        """Do nothing: see `KeptCosts`."""

    def _compare(self, cell: Cell, ratio: float) -> None:
        others = [other for last, other in self._last if last != cell]
        if not others:
            return
        compared = self._compared[cell]
        compared.append(ratio / median(others))
        if len(compared) < ENOUGH:
            return
        factor = median(compared) ** STRENGTH
        role, size, row = cell
        curve: PassCurve = getattr(self.curve, role)
        corrected: Mapping[str, Any] = {role: curve.corrected(size, row, factor)}
        self.curve = replace(self.curve, **corrected)
        self.is_changed |= abs(factor - 1.0) > WORTH_KEEPING
        compared.clear()


@dataclass(frozen=True)
class FixedCurve:
    """A constant curve. Implements `Costs`."""

    curve: CostCurve

    def learn(self, step: StepStats) -> None:
        """Nothing to learn."""

    def improve(self) -> None:
        """Nothing to measure."""

    def take_up(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Nothing changes."""

    def keep(self) -> None:
        """Nothing to keep."""
