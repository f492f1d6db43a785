"""Where a pipeline's cost curve comes from: a file, or a measurement before it is first needed."""

from collections.abc import Callable, Hashable
from math import ceil
from pathlib import Path
from typing import Protocol

from ov_specdec.checks import require_number
from ov_specdec.planning.costs.correction import LiveCurve
from ov_specdec.planning.costs.curve import ROWS, CostCurve
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
        """The present curve."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether passes that run change it."""
        ...

    def learn(self, step: StepStats) -> None:
        """Take note of a step that read no prompt."""
        ...

    def keep(self) -> None:
        """Keep what was learnt."""
        ...


class KeptCosts:
    """The curve of a pair of models on this machine. Implements `Costs`.

    path: the file that keeps it, None: none does. seconds: for measuring it where the file has
    none, or one of fewer than `SWEEPS`: of a large model, the time allows a part of one, and what
    is measured in later processes makes it better. Passes are timed when the curve is first looked
    at, or by `prepare`. new_namespace, compare: see `measure`.
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

    @property
    def curve(self) -> CostCurve:
        """The present curve; measured now where there is none."""
        return self._prepared().curve

    is_live = True

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> CostCurve:
        """Read or measure the curve, where that has not been done. seconds: measure it anew."""
        if seconds is not None:
            require_number("seconds", seconds, above=0.0)
            self._measure(progress, seconds, sweeps=ceil(SWEEPS * seconds / self._seconds))
        return self._prepared(progress).curve

    def learn(self, step: StepStats) -> None:
        """Correct the curve by a step, once there is one."""
        if self._live is not None:
            self._live.learn(step)

    def keep(self) -> None:
        """Write the curve where it has changed."""
        if self._live is not None and self._live.is_changed and self._path is not None:
            write_curve(self._path, self._live.curve)
            self._live.is_changed = False

    def _prepared(self, progress: Progress | None = None) -> LiveCurve:
        if self._live is None:
            kept = None if self._path is None else read_curve(self._path)
            # A file that was made for a pair serves no main model alone, and the reverse.
            if kept is None or (kept.draft is None) != (self._models[1] is None):
                return self._measure(progress, self._seconds, SWEEPS)
            if kept.sweeps < SWEEPS:
                return self._measure(progress, self._seconds, SWEEPS - kept.sweeps, kept)
            self._live = LiveCurve(kept)
        return self._live

    def _measure(
        self,
        progress: Progress | None,
        seconds: float,
        sweeps: int,
        kept: CostCurve | None = None,
    ) -> LiveCurve:
        known = () if kept is None else kept.main.seconds.get(ROWS[0], ())
        curve = measure(
            *self._models,
            seconds,
            sweeps=sweeps,
            known=known,
            progress=progress,
            new_namespace=self._new_namespace,
            compare=self._compare,
        )
        if kept is not None:
            curve = kept.least(curve)
        self._live = LiveCurve(curve)
        if self._path is not None:
            write_curve(self._path, curve)
        return self._live
