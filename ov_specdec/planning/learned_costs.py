"""`LearnedCosts`: what passes cost, learned from each of them by a Kalman filter."""

from bisect import bisect_left
from collections.abc import Sequence
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from ov_specdec.planning.costs import GRID, NOMINAL, CostCurve, Costs, PassCurve, Role
from ov_specdec.results.stats import PassStats

Numbers = NDArray[np.floating]

ROWS = len(GRID)
READ, CHANGE, STATIC, RESUMED, NUM = range(ROWS, ROWS + 5)
"""Indices of `per_read`, `change`, `static_factor` and `resumed` among the estimates of a model,
after seconds by size; and their number."""

NOMINAL_READ, NOMINAL_CHANGE = 1e-4, 0.05
"""Of a plain pass, before any is known: measured 0.7e-4 to 3.2e-4, and 0.03 to 0.5. `resumed` is 0
to 1.5 of a draft model's pass, and begins like a change."""

SCALE, DRAFT_SCALE, SLOPE, LOCAL, OTHER, FACTOR = 3.0, 1.5, 1.0, 0.35, 1.5, 0.2
"""How uncertain the first estimates are, as deviations of logarithms: of all passes together; of
the draft model's against the main model's; of what each further token costs; of single sizes, the
nearer the more alike; of reading, changes and returns; and of what static shapes save.

On recorded drafts and seven measured machines, with a tenth of noise, the first text of a process
had 0.95 to 1.07 of the speed of the best constant length, later texts 0.96 to 1.11. With 0.7 for
`SLOPE` a machine without VNNI had 0.91; 0.15 to 0.35 for `LOCAL`, and half of `OTHER`, change
1 %."""

KEPT = 0.3
"""The same of costs that were measured and kept, as a share of these."""

NOISE, FIRST_NOISE = 0.1, 0.3
"""Deviation of a pass from its cost, and of the first one of a size, which OpenVINO prepares:
without, a process that began with two tokens at 361 ms and three at 152 kept these for long. To
learn nothing from first ones had 0.96 of the speed on a real pair, whose sizes changed more."""

PACE, FORGOTTEN = 0.03, 1e-4
"""How much the machine's pace changes from step to step, and by which share all uncertainty becomes
that of the first estimates again: else sizes out of use would follow any disturbed pass in time."""

LOG_LIMITS = log(1e-12), log(86_000.0)
"""Of estimated seconds, whatever files and clocks say: they stay finite, and can be kept."""

SHOWN_EACH, SHOWN_AFTER = 64, 32
"""First passes that each renew the curve, and how many later ones do together: that, and to plan
by another curve, takes a quarter of a millisecond."""

KEPT_AFTER = 256
"""Steps after which what was learned is kept again."""

MOST = 2.5
"""Deviations that a single pass counts at most: another program may have disturbed it."""


class LearnedCosts(Costs):
    """A cost curve that each pass corrects.

    A pass takes (rows(n) + per_read * num_read + change + resumed) * pace: `PassCurve`, and the
    machine's current pace, which is common to all passes. The logarithms of all of these, for both
    models, are one state of an extended Kalman filter (Kalman 1960), whose covariance says how one
    observation moves the others: sizes move with their neighbours, and all with the first passes. A
    common slowdown moves the pace only. So nothing waits to be measured, and what was learned
    beside other work, or in an earlier process, is corrected in use.

    curve: the first estimates, whatever their unit. learns_prompts: whether reading the beginning
    of a prompt is a pass like others, which is not so where an encoder runs before.
    """

    def __init__(self, curve: CostCurve, *, learns_prompts: bool = True) -> None:
        super().__init__(curve)
        self._learns_prompts = learns_prompts
        models = {"main": curve.main}
        if curve.draft is not None:
            models["draft"] = curve.draft
        self._state = np.concatenate([[0.0], *map(_logarithms, models.values())])
        """Logarithms: of the pace, and of the estimates of each model."""
        self._begin = {role: 1 + index * NUM for index, role in enumerate(models)}
        has_unit = np.arange(NUM) != STATIC
        scales, own = np.outer(has_unit, has_unit), np.diag([0.0, DRAFT_SCALE**2][: len(models)])
        known = np.kron(np.eye(len(models)), _uncertainty()) + np.kron(own, scales)
        self._prior = np.pad(known, (1, 0))
        known += SCALE**2 * np.kron(np.ones_like(own), scales)
        self._covariance = np.pad(known, (1, 0)) * (KEPT if curve.is_measured else 1.0) ** 2
        self._static: dict[str, frozenset[int]] = {role: frozenset() for role in models}
        self._last_size: dict[str, int] = {}
        self._last_role = ""
        self._seen: set[tuple[str, int, bool]] = set()
        self._num_learned = 0

    def learn(
        self, role: Role, passes: Sequence[PassStats], static: frozenset[int] = frozenset()
    ) -> None:
        """Learn from passes of a step, unless one reads a prompt behind cached tokens.

        Nor from a model's first step, which reads its weights from disk: one that took seven times
        as long kept a draft model out of use for good. static: its current static shapes.
        """
        if static != self._static[role]:
            self._static[role] = static
            self._show()
        if not passes:
            return
        seconds, first, is_usual = dict[int, float](), False, role in self._last_size
        self._last_size.setdefault(role, 0)
        resumes = role == "draft" and role != self._last_role
        self._last_role = role
        for done in passes:
            is_prompt = done.num_prefill == done.num_tokens and not done.num_read
            is_usual &= not done.num_prefill or (is_prompt and self._learns_prompts)
            size = min(done.num_tokens, GRID[-1])
            for index, part in self._parts(role, size, done.num_read, resumes).items():
                seconds[index] = seconds.get(index, 0.0) + part
            resumes = False
            if size not in static:  # which leaves the others prepared
                self._last_size[role] = size
            kind = role, size, size in static
            first |= kind not in self._seen
            self._seen.add(kind)
        if not is_usual:
            return
        expected = sum(seconds.values()) - seconds.get(self._begin[role] + STATIC, 0.0)
        observed = sum([done.seconds for done in passes])
        surprise = (log(observed) if observed > 0.0 else LOG_LIMITS[0]) - log(expected)
        surprise -= self._state[0]
        gradient = np.array([expected, *seconds.values()]) / expected
        self._update(surprise, [0, *seconds], gradient, NOISE**2 + FIRST_NOISE**2 * first)
        self._num_learned += 1
        if self._num_learned <= SHOWN_EACH or self._num_learned % SHOWN_AFTER == 0:
            self._show()
        if self._num_learned % KEPT_AFTER == 0:
            self.keep()

    def _parts(self, role: Role, size: int, num_read: int, resumes: bool) -> dict[int, float]:
        """The estimates that a pass depends on, by index, and the seconds of it that vary so.

        Those of a static shape vary with its size and with its factor.
        """
        begin, after = self._begin[role], max(bisect_left(GRID, size), 1)
        share = (size - GRID[after - 1]) / (GRID[after] - GRID[after - 1])
        is_static = size in self._static[role]
        factor = exp(self._state[begin + STATIC]) if is_static else 1.0
        changes = not is_static and size != self._last_size[role]
        weights = {after - 1: factor * (1 - share), after: factor * share}
        weights |= {READ: num_read, CHANGE: changes, RESUMED: resumes}
        state = self._state[begin:]
        parts = {begin + i: each * exp(state[i]) for i, each in weights.items() if each}
        if is_static:
            parts[begin + STATIC] = sum(parts.get(begin + i, 0.0) for i in (after - 1, after))
        return parts

    def _update(self, surprise: float, indices: list[int], gradient: Numbers, noise: float) -> None:
        """One step of the filter.

        surprise: logarithm of observed by expected seconds. gradient: of expected seconds'
        logarithm, by the estimates at these indices.
        """
        self._covariance += FORGOTTEN * (self._prior - self._covariance)
        self._covariance[0, 0] += PACE**2
        with_observed = self._covariance[:, indices] @ gradient
        variance = float(gradient @ with_observed[indices]) + noise
        most = MOST * sqrt(variance)
        self._state += with_observed * (min(max(surprise, -most), most) / variance)
        np.clip(self._state, *LOG_LIMITS, out=self._state)
        with_observed /= sqrt(variance)
        self._covariance -= np.outer(with_observed, with_observed)

    def _show(self) -> None:
        """Make the curve of the estimates, at the present pace."""
        curves = dict[str, PassCurve]()
        for role, begin in self._begin.items():
            own = self._state[begin : begin + NUM] + self._state[0]
            own[STATIC] -= self._state[0]  # which has no unit
            values = np.exp(own.clip(*LOG_LIMITS)).tolist()
            seconds = dict(zip(GRID, values[:ROWS], strict=True))
            static, factor = self._static[role], min(max(values[STATIC], 0.1), 2.0)
            extra = values[CHANGE], values[READ], static, factor, values[RESUMED]
            curves[role] = PassCurve(seconds, *extra)
        self.curve = CostCurve(**curves, is_measured=self.curve.is_measured)
        self.is_learned = self._num_learned > 0


def _logarithms(passes: PassCurve) -> Numbers:
    """The estimates of a model before its first pass."""
    plain = passes.at(1)
    change, resumed = (x or NOMINAL_CHANGE * plain for x in (passes.change, passes.resumed))
    others = passes.per_read or NOMINAL_READ * plain, change, passes.static_factor, resumed
    values = [*(passes.at(size) for size in GRID), *others]
    logarithms: Numbers = np.log(values).clip(*LOG_LIMITS)
    return logarithms


def _uncertainty() -> Numbers:
    """Covariance of a model's estimates before its first pass, besides its scale."""
    rows = np.array([NOMINAL.main.at(size) for size in GRID])
    slope = np.append(1.0 - rows[0] / rows, np.zeros(NUM - ROWS))
    place = np.arange(ROWS)
    near = np.exp(-np.abs(np.subtract.outer(place, place)) / 2.0)
    covariance = SLOPE**2 * np.outer(slope, slope)
    covariance[:ROWS, :ROWS] += LOCAL**2 * near
    others = [READ, CHANGE, RESUMED]
    covariance[others, others] += OTHER**2
    covariance[STATIC, STATIC] += FACTOR**2
    return covariance
