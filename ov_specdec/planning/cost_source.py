"""The source of a pipeline's cost curve: a file, or a measurement while nothing else runs."""

from collections.abc import Callable, Hashable
from dataclasses import asdict
from functools import partial
from math import ceil
from pathlib import Path

from pydantic import TypeAdapter

from ov_specdec.errors import CacheFullError
from ov_specdec.options.model import require
from ov_specdec.planning.costs import NOMINAL, CostCurve, LiveCurve, Progress, Role
from ov_specdec.planning.measurement import SWEEPS, Measurement
from ov_specdec.records.files import keep_section, read_section
from ov_specdec.results.stats import StepStats, Stopwatch
from ov_specdec.runner.base import Runner

PART = 1 / 16
"""Fraction of the time for a curve that one part takes."""

SPENT_ON_MEASURING = 0.05
"""Fraction of decoding time for measurements."""


class KeptCosts(LiveCurve):
    """The curve of a pair of models on this machine.

    path: the file that keeps it; None: no file. seconds: for a measurement of all of it. In use, it
    is measured part by part, unless the file has `SWEEPS` sweeps. If memory has no room for that,
    it stays the nominal curve, corrected by actual passes. new_namespace: see `Measurement`.
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
        self._path, self._seconds = path, seconds
        self._measuring: Measurement | None = None
        self._decoding = self._spent = 0.0
        """Seconds of decoding since a part was measured, and of that measurement."""

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> CostCurve:
        """Measure the curve unless it is known. seconds: measure it in any case."""
        if seconds is not None:
            require("seconds", seconds, float, gt=0)
            self._measuring = self._measurement(sweeps=ceil(SWEEPS * seconds / self._seconds))
            self._measure(seconds, progress, is_new=True)
        elif self.measured.sweeps < SWEEPS:
            self._measure(self._seconds, progress)
        return self.curve

    def improve(self) -> None:
        """Measure a part of the curve: the required sizes at once, each by a pass or two.

        Others follow during decoding, for a small fraction of its time.
        """
        if self.measured.sweeps == 0 and self._measuring is None:
            self._measure(0.0)
        elif self.measured.sweeps < SWEEPS and SPENT_ON_MEASURING * self._decoding > max(
            self._spent, PART * self._seconds
        ):
            self._measure(PART * self._seconds)

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        super().set_static(role, sizes, saved)
        write_curve(self._path, self.measured)

    def learn(self, step: StepStats) -> None:
        """Correct the curve by a step."""
        self._decoding += step.main.seconds
        super().learn(step)

    def _measure(
        self, seconds: float, progress: Progress | None = None, *, is_new: bool = False
    ) -> None:
        """Go on with the measurement. is_new: it replaces one of more sweeps too."""
        watch = Stopwatch()
        self._measuring = self._measuring or self._measurement()
        try:
            self._measuring.run(seconds, progress)
        except CacheFullError:  # only very short requests can run
            return
        except BaseException:
            self._measuring = None  # the next request begins anew
            raise
        curve = self._measuring.curve(self.measured)
        if is_new or curve.sweeps >= self.measured.sweeps:
            self.take(curve)
            write_curve(self._path, curve)
        self._decoding, self._spent = 0.0, watch.total()


def read_curve(path: Path | None) -> CostCurve | None:
    """The curve in a file; None if there is no valid one."""
    return read_section(path, "costs", TypeAdapter(CostCurve).validate_python)


def write_curve(path: Path | None, curve: CostCurve) -> None:
    """Write a measured curve, not the nominal one; warns if the folder cannot be written."""
    if path is None or not curve.sweeps:
        return
    content = asdict(curve)
    for passes in filter(None, (content["main"], content["draft"])):
        del passes["static"]  # compiled by each process
    keep_section(path, "costs", content)
