"""Corrects a cost curve with the times of actual passes."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from ov_specdec.planning.costs.curve import CostCurve, Role, nearest_row, nearest_size
from ov_specdec.stats import PassStats, StepStats

Cell = tuple[Role, int, int]
"""The model, tokens in the pass, and the row of the curve."""

ENOUGH = 15
"""Comparisons whose median corrects a cell: it tolerates seven outliers."""

AT_THE_TIME = 4
"""Last passes of the main model that give the machine's current speed, which changes in seconds."""

STRENGTH = 0.5
"""The exponent of each correction, a damping."""


class LiveCurve:
    """A measured curve, corrected by the passes that run. Implements `Costs`.

    A pass takes the time of the curve times the machine's current slowdown, which is common to all
    passes. So passes of one size are compared with recent ones of other sizes, and drafting with
    passes of the main model. A common slowdown changes nothing, and a size that runs alone cannot
    be corrected.

    The mean of the main model's corrections is 1. Otherwise two sizes that are compared only with
    each other, in steps that differ in more than their size, would correct each other for ever.
    """

    def __init__(self, measured: CostCurve) -> None:
        self.measured = self.curve = measured
        self._factors: dict[Cell, float] = {}
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

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        self.measured = self.measured.with_static(role, sizes, saved)
        self._correct()

    def _compare(self, cell: Cell, ratio: float) -> None:
        others = [other for last, other in self._last if last != cell]
        if not others:
            return
        compared = self._compared[cell]
        compared.append(ratio / median(others))
        if len(compared) < ENOUGH:
            return
        self._factors[cell] = self._factors.get(cell, 1.0) * median(compared) ** STRENGTH
        compared.clear()
        self._correct()

    def _correct(self) -> None:
        """Multiply the measured curve by the factors of its cells."""
        of_main = [factor for (role, *_), factor in self._factors.items() if role == "main"]
        mean = geometric_mean(of_main) if of_main else 1.0
        main, draft = self.measured.main, self.measured.draft
        for (role, size, row), factor in self._factors.items():
            if role == "main":
                main = main.corrected(size, row, factor / mean)
            elif draft is not None:
                draft = draft.corrected(size, row, factor / mean)
        self.curve = replace(self.measured, main=main, draft=draft)


@dataclass(frozen=True)
class FixedCurve:
    """A constant curve. Implements `Costs`."""

    curve: CostCurve

    def learn(self, step: StepStats) -> None:
        """Nothing to learn."""

    def improve(self) -> None:
        """Nothing to measure."""

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Nothing changes."""
