"""Where a pipeline's cost curve comes from: a file, or a measurement while nothing else runs."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Protocol

from ov_specdec.checks import require_number
from ov_specdec.errors import CacheFullError
from ov_specdec.planning.costs.correction import LiveCurve
from ov_specdec.planning.costs.curve import NOMINAL, ROWS, CostCurve
from ov_specdec.planning.costs.kept import read_curve, write_curve
from ov_specdec.planning.costs.measure import SWEEPS, Compare, measure, no_comparison
from ov_specdec.runner.base import Runner
from ov_specdec.stats import StepStats

Progress = Callable[[float], None]
"""Told of the share of a measurement that is done, from 0 to 1."""


class Costs(Protocol):
    """What passes cost, as far as it is known."""

    @property
    def curve(self) -> CostCurve:
        """The present curve. Looking at it runs no passes."""
        ...

    def prepare(self) -> CostCurve:
        """Measure where that has not been done. Nothing else may use the models."""
        ...

    def learn(self, step: StepStats) -> None:
        """Take note of a step without prefill."""
        ...

    def keep(self) -> None:
        """Keep what was learnt."""
        ...


class KeptCosts:
    """The curve of a pair of models on this machine. Implements `Costs`.

    path: the file that keeps it, None: none does. seconds: for measuring it where the file has
    none, or one of fewer than `SWEEPS`: of a large model, the time allows a part of one, and what
    is measured in later processes makes it better. Passes are timed by `prepare` alone; until then,
    and where memory has no room for them, the curve is an imagined one, which the passes that run
    correct. new_namespace, compare: see `measure`.
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

    @property
    def curve(self) -> CostCurve:
        """The present curve: one of no sweeps is imagined."""
        return self._known.curve

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> CostCurve:
        """Measure the curve, where that has not been done. seconds: measure it anew."""
        if seconds is not None:
            require_number("seconds", seconds, above=0.0)
            self._measure(progress, seconds, ceil(SWEEPS * seconds / self._seconds))
        elif not self._is_prepared:
            known = self.curve
            if known.sweeps < SWEEPS:
                kept = known if known.sweeps else None
                self._measure(progress, self._seconds, SWEEPS - known.sweeps, kept)
        self._is_prepared = True
        return self.curve

    def learn(self, step: StepStats) -> None:
        """Correct the curve by a step, once somebody has looked at it."""
        if self._live is not None:
            self._live.learn(step)

    def keep(self) -> None:
        """Write the curve where it has changed, but not an imagined one."""
        live = self._live
        if live is not None and live.is_changed and live.curve.sweeps and self._path is not None:
            write_curve(self._path, live.curve)
            live.is_changed = False

    @property
    def _known(self) -> LiveCurve:
        """The curve as it was measured or read, else an imagined one."""
        if self._live is None:
            kept = None if self._path is None else read_curve(self._path)
            # A file that was made for a pair serves no main model alone, and the reverse.
            if kept is None or (kept.draft is None) != (self._models[1] is None):
                kept = _imagined(*self._models)
            self._live = LiveCurve(kept)
        return self._live

    def _measure(
        self,
        progress: Progress | None,
        seconds: float,
        sweeps: int,
        kept: CostCurve | None = None,
    ) -> None:
        known = () if kept is None else kept.main.seconds.get(ROWS[0], ())
        try:
            curve = measure(
                *self._models,
                seconds,
                sweeps=sweeps,
                known=known,
                progress=progress,
                new_namespace=self._new_namespace,
                compare=self._compare,
            )
        except CacheFullError:  # only requests that are as short can run
            return
        if kept is not None:
            curve = kept.least(curve)
        self._live = LiveCurve(curve)
        if self._path is not None:
            write_curve(self._path, curve)


def _imagined(main: Runner, draft: Runner | None) -> CostCurve:
    """What passes of two models cost that nobody has timed, in plain passes."""
    curve = CostCurve(replace(NOMINAL.main, static=main.static_shapes))
    if draft is None or NOMINAL.draft is None:
        return curve
    return replace(curve, draft=replace(NOMINAL.draft, static=draft.static_shapes))
