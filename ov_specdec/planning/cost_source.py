"""The source of a pipeline's cost curve: a file, or a measurement while nothing else runs."""

from collections.abc import Callable, Hashable
from dataclasses import asdict
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from ov_specdec.errors import CacheFullError
from ov_specdec.options.model import require
from ov_specdec.planning.costs import GRID, NOMINAL, CostCurve, LiveCurve, PassCurve, Progress, Role
from ov_specdec.planning.measurement import SWEEPS, Measurement
from ov_specdec.records.files import keep_section, read_section
from ov_specdec.results.stats import StepStats, Stopwatch
from ov_specdec.runner.base import Runner

PART = 1 / 16
"""Fraction of the time for a curve that one part takes."""

SPENT_ON_MEASURING = 0.05
"""Fraction of decoding time for measurements."""


DAY = 86_400.0
"""Seconds that no pass takes."""


class KeptCosts:
    """The curve of a pair of models on this machine. Implements `Costs`.

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
        self._measurement = partial(Measurement, main, draft, new_namespace=new_namespace)
        self._path, self._seconds = path, seconds
        self._known: LiveCurve | None = None
        self._nominal = NOMINAL if draft is not None else CostCurve(NOMINAL.main)
        self._measuring: Measurement | None = None
        self._decoding = self._spent = 0.0
        """Seconds of decoding since a part was measured, and of that measurement."""

    @property
    def curve(self) -> CostCurve:
        """The current curve; with 0 sweeps it is the nominal one."""
        return self._live.curve

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> CostCurve:
        """Measure the curve unless it is known. seconds: measure it in any case."""
        if seconds is not None:
            require("seconds", seconds, float, gt=0)
            self._measuring = self._measurement(sweeps=ceil(SWEEPS * seconds / self._seconds))
            self._measure(seconds, progress, is_new=True)
        elif self._live.measured.sweeps < SWEEPS:
            self._measure(self._seconds, progress)
        return self.curve

    def improve(self) -> None:
        """Measure a part of the curve: the required sizes at once, in 0.1 s.

        Others follow during decoding, for a small fraction of its time.
        """
        sweeps = self._live.measured.sweeps
        if sweeps == 0 and self._measuring is None:
            self._measure(0.0)
        elif sweeps < SWEEPS and SPENT_ON_MEASURING * self._decoding > max(
            self._spent, PART * self._seconds
        ):
            self._measure(PART * self._seconds)

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        self._live.set_static(role, sizes, saved)
        write_curve(self._path, self._live.measured)

    def learn(self, step: StepStats) -> None:
        """Correct the curve by a step."""
        self._decoding += step.main.seconds
        self._live.learn(step)

    @property
    def _live(self) -> LiveCurve:
        """The measured or loaded curve, else the nominal one."""
        if self._known is None:
            kept = read_curve(self._path)
            # A pair's file does not fit a main model alone, nor the reverse.
            is_fitting = kept and (kept.draft is None) == (self._nominal.draft is None)
            self._known = LiveCurve(kept if kept and is_fitting else self._nominal)
        return self._known

    def _measure(
        self, seconds: float, progress: Progress | None = None, *, is_new: bool = False
    ) -> None:
        """Go on with the measurement. is_new: it replaces one of more sweeps too."""
        watch, kept = Stopwatch(), self._live.measured
        self._measuring = self._measuring or self._measurement()
        try:
            self._measuring.run(seconds, progress)
        except CacheFullError:  # only very short requests can run
            return
        except BaseException:
            self._measuring = None  # the next request begins anew
            raise
        curve = self._measuring.curve(kept)
        if is_new or curve.sweeps >= kept.sweeps:
            self._known = LiveCurve(curve)
            write_curve(self._path, curve)
        self._decoding, self._spent = 0.0, watch.total()


def read_curve(path: Path | None) -> CostCurve | None:
    """The curve in a file; None if there is no valid one."""

    def read(content: dict[str, Any]) -> CostCurve:
        draft, sweeps = content["draft"], content["sweeps"]
        require("sweeps", sweeps, int, ge=1)
        return CostCurve(
            _passes(content["main"]), None if draft is None else _passes(draft), sweeps
        )

    return read_section(path, "costs", read)


def write_curve(path: Path | None, curve: CostCurve) -> None:
    """Write a measured curve, not the nominal one; warns if the folder cannot be written."""
    if path is None or not curve.sweeps:
        return
    content = asdict(curve)
    for passes in filter(None, (content["main"], content["draft"])):
        del passes["static"]  # compiled by each process
    keep_section(path, "costs", content)


def _passes(content: Any) -> PassCurve:
    """Parse a curve; `ValueError` for times and sizes that no measurement gives."""
    seconds = {int(size): float(time) for size, time in content["seconds"].items()}
    names = ("change", "per_sequence", "saved")
    change, per_sequence, saved = extras = [float(content[name]) for name in names]
    if not seconds or not seconds.keys() <= {*GRID}:
        raise ValueError("no sizes, or unknown ones")
    if not (all(0 < t < DAY for t in seconds.values()) and all(0 <= t < DAY for t in extras)):
        raise ValueError("invalid times")
    return PassCurve(seconds, change, per_sequence, saved)
