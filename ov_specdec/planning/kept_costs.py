"""`KeptCosts`: the cost curve of a pair, from a file, or measured while nothing else runs."""

from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median

from ov_specdec.errors import CacheFullError
from ov_specdec.files import keep_section, read_section
from ov_specdec.options.model import require
from ov_specdec.planning.costs import COMPARISONS, NOMINAL, CostCurve, LiveCurve, Progress, Role
from ov_specdec.planning.measurement import SWEEPS, Measurement
from ov_specdec.results.stats import StepStats
from ov_specdec.runner.base import Runner

CONFIRMED = 2
"""Measurements of what every curve needs: one of them may have been disturbed."""

FASTER = 0.8
"""Share of its time in the curve that a typical pass takes if other work disturbed the curve."""


class KeptCosts(LiveCurve):
    """The curve of a pair of models on this machine.

    path: the file that keeps it; None: no file. seconds: for a measurement of all of it. In use,
    only what every curve needs is measured, and passes correct it. If memory has no room for that,
    it stays the nominal curve. new_namespace: see `Measurement`.

    Other work disturbs measurements. So the next process repeats a short one, and a curve is
    measured again, all sizes of it, once passes in use are faster than it says.
    """

    def __init__(
        self,
        main: Runner,
        draft: Runner | None,
        path: Path | None,
        seconds: float,
        *,
        new_namespace: Callable[[], Hashable] = object,
    ) -> None:
        nominal = NOMINAL if draft is not None else CostCurve(NOMINAL.main)
        super().__init__(read_curve(path) or nominal)
        self._measurement = partial(Measurement, main, draft, new_namespace=new_namespace)
        self._path, self._seconds, self._may_improve = path, seconds, True
        self._paces: deque[float] = deque(maxlen=COMPARISONS)

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> None:
        """Measure the curve unless it is known. seconds: measure it in any case."""
        if seconds is not None:
            require("seconds", seconds, float, gt=0)
            self._measure(seconds, progress, ceil(SWEEPS * seconds / self._seconds))
        elif self.measured.sweeps < SWEEPS:
            self._measure(self._seconds, progress, kept=self.measured)

    def improve(self) -> None:
        """Measure what every curve needs, unless an earlier process and this one have."""
        if self._may_improve and self.measured.sweeps < CONFIRMED:
            self._measure(0.0, kept=self.measured)

    def learn(self, step: StepStats) -> None:
        """Learn from a step without prefill, which may show that the curve is to be dropped."""
        super().learn(step)
        if not self.measured.sweeps:
            return
        main, done = self.measured.main, step.main
        self._paces.append(done.seconds / main.at(done.num_tokens, done.num_read))
        if len(self._paces) == COMPARISONS and median(self._paces) < FASTER:
            self._paces.clear()
            self.measured, self._may_improve = replace(self.measured, sweeps=0), True
            keep_section(self._path, "costs", None)

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        super().set_static(role, sizes, saved)
        write_curve(self._path, self.measured)

    def _measure(
        self,
        seconds: float,
        progress: Progress | None = None,
        sweeps: int = SWEEPS,
        kept: CostCurve = NOMINAL,
    ) -> None:
        """Take a new curve, to which the kept one is added if it has few sweeps."""
        measurement = self._measurement(sweeps=sweeps)
        with suppress(CacheFullError):  # only very short requests can run
            measurement.run(seconds, progress)
            curve = measurement.curve(self.measured)
            if kept.sweeps and curve.sweeps < SWEEPS:
                curve = curve.with_earlier(kept)
            self.take(curve)
            write_curve(self._path, curve)
        self._may_improve = False


def read_curve(path: Path | None) -> CostCurve | None:
    """The curve in a file; None if there is no valid one."""
    return read_section(path, "costs", CostCurve)


def write_curve(path: Path | None, curve: CostCurve) -> None:
    """Write a measured curve, not the nominal one; warns if the folder cannot be written."""
    if curve.sweeps:
        keep_section(path, "costs", curve)
