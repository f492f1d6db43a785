"""The source of a pipeline's cost curve: a file, or a measurement while nothing else runs."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Protocol

from ov_specdec.checks import require_number
from ov_specdec.errors import CacheFullError
from ov_specdec.planning.costs.correction import LiveCurve
from ov_specdec.planning.costs.curve import NOMINAL, CostCurve, Role
from ov_specdec.planning.costs.kept import read_curve, write_curve
from ov_specdec.planning.costs.measure import SWEEPS, Compare, measure, no_comparison
from ov_specdec.runner.base import Runner
from ov_specdec.stats import StepStats, Stopwatch

Progress = Callable[[float], None]
"""Called with the finished fraction of a measurement, 0 to 1."""


class Costs(Protocol):
    """Provides the cost curve of passes."""

    @property
    def curve(self) -> CostCurve:
        """The current curve. Runs no passes."""
        ...

    def improve(self) -> None:
        """Measure a missing part, if it is due. Nothing else may use the models."""
        ...

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        ...

    def learn(self, step: StepStats) -> None:
        """Learn from a step without prefill."""
        ...


PART = 1 / 16
"""Fraction of the time for a curve that one part takes."""

SPENT_ON_MEASURING = 0.05
"""Fraction of decoding time for measurements."""


class KeptCosts:
    """The curve of a pair of models on this machine. Implements `Costs`.

    path: the file that keeps it; None: no file. seconds: for a measurement of all of it, if the
    file has none or fewer than `SWEEPS` sweeps; for a large model that covers a part, and later
    processes add to it. In use, it is measured part by part. If memory has no room for that, it
    stays the nominal curve, corrected by actual passes. new_namespace, compare: see `measure`.
    """

    def __init__(
        self,
        main: Runner,
        draft: Runner | None,
        path: Path | None,
        seconds: float,
        *,
        new_namespace: Callable[[], Hashable] = object,
        compare: Compare = no_comparison,
    ) -> None:
        self._models = main, draft
        self._compare = compare
        self._new_namespace = new_namespace
        self._path = path
        self._seconds = seconds
        self._live: LiveCurve | None = None
        self._is_prepared = False
        self._decoding, self._part = 0.0, 0.0
        """Seconds of decoding since a part was measured, and the time of that measurement."""

    @property
    def curve(self) -> CostCurve:
        """The current curve; with 0 sweeps it is the nominal one."""
        return self._known.curve

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> CostCurve:
        """Measure the curve unless it is known. seconds: measure it in any case."""
        if seconds is not None:
            require_number("seconds", seconds, above=0.0)
            sweeps = ceil(SWEEPS * seconds / self._seconds)
            self._measure(progress, seconds, sweeps, replace(self._known.measured, sweeps=0))
        else:
            known = self._known.measured
            if known.sweeps < SWEEPS:
                self._measure(progress, self._seconds, SWEEPS - known.sweeps, known)
        self._is_prepared = True
        return self.curve

    def improve(self) -> None:
        """Measure a part of the curve: the required sizes at once, in 0.1 s.

        Others follow during decoding, for a small fraction of its time.
        """
        known = self._known.measured
        is_first = known.sweeps == 0 and not self._is_prepared
        is_due = SPENT_ON_MEASURING * self._decoding > max(self._part, PART * self._seconds)
        if is_first or (is_due and known.sweeps < SWEEPS):
            watch = Stopwatch()
            self._measure(None, 0.0 if is_first else PART * self._seconds, 1, known)
            self._is_prepared = True  # even if memory has no room for it
            self._decoding, self._part = 0.0, watch.total()

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        self._known.set_static(role, sizes, saved)
        self._write(self._known.measured)

    def learn(self, step: StepStats) -> None:
        """Correct the curve by a step, once it is in use."""
        self._decoding += step.main.seconds
        if self._live is not None:
            self._live.learn(step)

    @property
    def _known(self) -> LiveCurve:
        """The measured or loaded curve, else the nominal one."""
        if self._live is None:
            kept = read_curve(self._path)
            # A pair's file does not fit a main model alone, nor the reverse.
            if kept is None or (kept.draft is None) != (self._models[1] is None):
                kept = NOMINAL if self._models[1] is not None else CostCurve(NOMINAL.main)
            self._live = LiveCurve(kept)
        return self._live

    def _measure(
        self,
        progress: Progress | None,
        seconds: float,
        sweeps: int,
        kept: CostCurve,
    ) -> None:
        """Time passes. kept: the curve so far; one with 0 sweeps is replaced."""
        try:
            curve = measure(
                *self._models,
                seconds,
                sweeps=sweeps,
                kept=kept,
                progress=progress,
                new_namespace=self._new_namespace,
                compare=self._compare,
            )
        except CacheFullError:  # only very short requests can run
            return
        if kept.sweeps:
            curve = kept.least(curve)
        self._live = LiveCurve(curve)
        self._write(curve)

    def _write(self, curve: CostCurve) -> None:
        """Write a measured curve, not the nominal one."""
        if self._path is not None and curve.sweeps:
            write_curve(self._path, curve)
