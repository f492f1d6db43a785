"""`KeptCosts`: the cost curve of a pair, from a file, or measured while nothing else runs."""

from collections.abc import Callable, Hashable
from functools import partial
from math import ceil
from pathlib import Path

from ov_specdec.errors import CacheFullError
from ov_specdec.files import keep_section, read_section
from ov_specdec.options.model import require
from ov_specdec.planning.costs import NOMINAL, CostCurve, LiveCurve, Progress, Role
from ov_specdec.planning.measurement import SWEEPS, Measurement
from ov_specdec.runner.base import Runner


class KeptCosts(LiveCurve):
    """The curve of a pair of models on this machine.

    path: the file that keeps it; None: no file. seconds: for a measurement of all of it. In use,
    only what every curve needs is measured, and passes correct it. If memory has no room for that,
    it stays the nominal curve. new_namespace: see `Measurement`.
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
        self._path, self._seconds, self._has_room = path, seconds, True

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> None:
        """Measure the curve unless it is known. seconds: measure it in any case."""
        if seconds is not None:
            require("seconds", seconds, float, gt=0)
            self._measure(seconds, progress, ceil(SWEEPS * seconds / self._seconds))
        elif self.measured.sweeps < SWEEPS:
            self._measure(self._seconds, progress, least=self.measured.sweeps)

    def improve(self) -> None:
        """Measure what every curve needs, unless there is one."""
        if self.measured.sweeps == 0 and self._has_room:
            self._measure(0.0)

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        super().set_static(role, sizes, saved)
        write_curve(self._path, self.measured)

    def _measure(
        self,
        seconds: float,
        progress: Progress | None = None,
        sweeps: int = SWEEPS,
        least: int = 0,
    ) -> None:
        """Take a new curve, if it has the least number of sweeps."""
        measurement = self._measurement(sweeps=sweeps)
        try:
            measurement.run(seconds, progress)
        except CacheFullError:  # only very short requests can run
            self._has_room = False
            return
        curve = measurement.curve(self.measured)
        if curve.sweeps >= least:
            self.take(curve)
            write_curve(self._path, curve)


def read_curve(path: Path | None) -> CostCurve | None:
    """The curve in a file; None if there is no valid one."""
    return read_section(path, "costs", CostCurve)


def write_curve(path: Path | None, curve: CostCurve) -> None:
    """Write a measured curve, not the nominal one; warns if the folder cannot be written."""
    if curve.sweeps:
        keep_section(path, "costs", curve)
