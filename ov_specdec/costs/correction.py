"""Corrects a cost curve by the passes that really run."""

from collections import defaultdict, deque
from dataclasses import replace
from statistics import median
from typing import Literal

from ov_specdec.costs.curve import SIZES, CostCurve, PassCurve, nearest_row
from ov_specdec.stats import RoundStats

Cell = tuple[Literal["main", "draft"], int, int]
"""The model, tokens in the pass, and the row of the curve."""

ENOUGH = 15
"""Passes of a cell whose median corrects it: it bears seven that were disturbed."""

WINDOW = 64
"""Passes that tell the machine's present pace: it changes within seconds."""

STRENGTH = 0.5
"""The part of a correction, as an exponent, that is believed at once."""

WORTH_KEEPING = 0.03
"""How much a correction has to change for the curve to be written again."""


class LiveCurve:
    """A curve that follows the machine. Implements `Costs`, and keeps nothing.

    A pass takes what the curve says times the machine's present pace, which is the same for all
    passes. So a cell is compared with other cells of the same time: what is longer as a whole
    changes nothing, and a cell that runs alone cannot be told from the pace.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        self.is_changed = False
        """Whether there is something worth keeping."""
        self._ratios: deque[tuple[Cell, float]] = deque(maxlen=WINDOW)
        self._new: dict[Cell, int] = defaultdict(int)
        self._last_size = 0

    @property
    def pace(self) -> float:
        """How many times as long as in the curve passes take at present."""
        return median(ratio for _, ratio in self._ratios) if self._ratios else 1.0

    def learn(self, stats: RoundStats) -> None:
        """Take note of a round. A prefill and changes of size are like no other."""
        size, cached = stats.pass_tokens, stats.cached_tokens
        if stats.reason != "prefill" and size == self._last_size and size in SIZES:
            expected = self.curve.main.at(size, cached)
            self._add(("main", size, nearest_row(cached)), stats.verify_seconds / expected)
        # Reading the prompt, or what was added while others drafted, is no step.
        if self.curve.draft is not None and 0 < stats.num_drafted == stats.draft_pass_tokens:
            start, step, _ = self.curve.drafting(cached)
            expected = start + stats.num_drafted * step
            self._add(("draft", 1, nearest_row(cached)), stats.draft_seconds / expected)
        self._last_size = size

    def _add(self, cell: Cell, ratio: float) -> None:
        self._ratios.append((cell, ratio))
        self._new[cell] += 1
        if self._new[cell] >= ENOUGH:
            self._correct(cell)

    def _correct(self, cell: Cell) -> None:
        own = [ratio for other, ratio in self._ratios if other == cell]
        others = [ratio for other, ratio in self._ratios if other != cell]
        if min(len(own), len(others)) < ENOUGH:
            return
        del self._new[cell]
        role, size, row = cell
        factor = (median(own) / median(others)) ** STRENGTH
        curve: PassCurve = getattr(self.curve, role)
        self.curve = replace(self.curve, **{role: curve.corrected(size, row, factor)})
        kept = [(c, ratio) for c, ratio in self._ratios if c != cell]
        self._ratios = deque(kept, maxlen=WINDOW)
        self.is_changed |= abs(factor - 1.0) > WORTH_KEEPING

    def keep(self) -> None:
        """Nothing to do: see `KeptCosts`."""
