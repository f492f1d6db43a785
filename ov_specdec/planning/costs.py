"""Cost curves: seconds of a pass by its tokens, corrected with the times of actual passes."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import geometric_mean, median
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ov_specdec.results.stats import PassStats, StepStats

GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Sizes that are corrected in use, all measured ones among them; other passes count for the
nearest."""

LONGEST = 1024
"""Tokens of the longest distinguished pass: twice the longest chunk of a prefill."""

MOST_SAVED = 0.5
"""Maximum plausible saving of a static shape, in cheapest passes: measured 0.13 to 0.25."""

Role = Literal["main", "draft"]
"""The model of a pass."""

Seconds = Annotated[float, Field(ge=0.0, lt=86_400.0)]
"""No pass takes a day."""


@dataclass(frozen=True)
class PassCurve:
    """Passes of one model.

    seconds: by tokens in the pass. change: extra seconds of a pass with another size than the
    previous one, because OpenVINO prepares the model for new shapes. per_read: seconds to read a
    cached token for one token of a pass. saved: seconds that a static shape saves at any size,
    since OpenVINO need not prepare it. static: sizes of current static shapes, which have no change
    cost; not kept, as each process compiles its own.
    """

    seconds: Annotated[Mapping[int, Annotated[Seconds, Field(gt=0.0)]], Field(min_length=1)]
    change: Seconds = 0.0
    per_read: Seconds = 0.0
    saved: Seconds = 0.0
    static: Annotated[frozenset[int], Field(exclude=True)] = frozenset()

    def at(self, num_tokens: int, num_read: int = 0) -> float:
        """Seconds of a pass over `num_tokens`; positive.

        num_read: the sum over them of the cached tokens that each reads.
        """
        return float(self._by_size[min(num_tokens, LONGEST)]) + self.per_read * num_read

    def by_size(self, last: int, num_read: int = 0) -> NDArray[np.floating]:
        """Seconds of passes over 0 to `last` tokens; constant beyond the longest."""
        seconds: NDArray[np.floating] = self._by_size[np.arange(last + 1).clip(max=LONGEST)]
        return seconds + self.per_read * num_read

    def varying(self, num_tokens: NDArray[np.floating]) -> NDArray[np.floating]:
        """Seconds of passes whose size varies, by their mean number of tokens; 0 is no pass."""
        result: NDArray[np.floating] = np.interp(num_tokens, np.arange(LONGEST + 1), self._varying)
        return result

    @cached_property
    def _varying(self) -> NDArray[np.floating]:
        """By tokens, from 0: a pass is padded to a near static shape, or changes the size."""
        result: NDArray[np.floating] = self._by_size + self.change
        for size in sorted(self.static, reverse=True):
            result[(size + 1) // 2 : size + 1] = self.at(size)
        result[0] = 0.0
        return result

    @cached_property
    def _by_size(self) -> NDArray[np.floating]:
        """By tokens, from 0: linear between measurements, with the mean slope after the last.

        The slope of the last two would be too low: 0.6 ms a token on the embedded pair, where
        passes over 16 sequences take 1.2, and the mean slope is 0.9.
        """
        sizes, tokens = sorted(self.seconds), np.arange(LONGEST + 1)
        seconds = [self.seconds[size] for size in sizes]
        slope = (seconds[-1] - seconds[0]) / max(sizes[-1] - sizes[0], 1)
        result: NDArray[np.floating] = np.interp(tokens, sizes, seconds)
        result += (tokens - sizes[-1]).clip(min=0) * max(slope, 0.0)
        result[[size for size in self.static if size <= LONGEST]] -= self.saving
        return result

    @property
    def saving(self) -> float:
        """`saved` as far as it is plausible: a disturbed trial cannot make passes free."""
        return min(self.saved, MOST_SAVED * min(self.seconds.values()))

    def with_earlier(self, kept: "PassCurve") -> "PassCurve":
        """The curve with the shorter time of each size: disturbances only lengthen passes."""
        sizes = self.seconds.keys() | kept.seconds.keys()
        both = {n: min(c.seconds[n] for c in (self, kept) if n in c.seconds) for n in sizes}
        return replace(self, seconds=both, per_read=self.per_read or kept.per_read)

    def times(self, factors: Mapping[int, float]) -> "PassCurve":
        """The curve with passes of these sizes so many times as long."""
        measured = replace(self, static=frozenset())
        changed = {size: factor * measured.at(size) for size, factor in factors.items()}
        return replace(self, seconds={**self.seconds, **changed})


@dataclass(frozen=True)
class CostCurve:
    """The costs of a round: passes of the main model, and of the draft model if there is one.

    It excludes lookups in the text, which take some ten microseconds, and run before the planner.
    sweeps: how often all sizes were timed, or as many of them as time allowed; 0: nominal costs.
    """

    main: PassCurve
    draft: PassCurve | None = None
    sweeps: int = 0

    def with_static(self, role: Role, sizes: frozenset[int], saved: float) -> "CostCurve":
        """The curve with static shapes of these sizes, each of which saves `saved` seconds."""
        passes = getattr(self, role)
        if passes is None:
            return self
        return replace(self, **{role: replace(passes, static=sizes, saved=saved)})

    def with_earlier(self, kept: "CostCurve") -> "CostCurve":
        """The same for both models, with the sweeps of both curves."""
        draft = self.draft and kept.draft and self.draft.with_earlier(kept.draft)
        main, sweeps = self.main.with_earlier(kept.main), self.sweeps + kept.sweeps
        return CostCurve(main, draft, sweeps)

    @cached_property
    def drafting(self) -> tuple[float, float]:
        """Seconds of drafting: per draft token, and once after a fully accepted draft.

        The first pass then feeds two tokens, the last draft token and the main model's own.
        """
        if self.draft is None:
            return 0.0, 0.0
        step, pair = self.draft.at(1), self.draft.at(2)
        changes = len({1, 2} - self.draft.static) * self.draft.change
        return step, pair - step + changes


NOMINAL = CostCurve(
    PassCurve({size: 1.0 + 0.1 * (size - 1) for size in GRID if size <= 16}), PassCurve({1: 0.1})
)
"""The nominal cost curve, in plain passes, for draft lengths that must not depend on measurements.

A draft token and each further token cost a tenth of a plain pass, between pairs measured with AMX
(0.08 and 0.06 for the embedded pair) and without (0.09 and 0.13).
"""

Progress = Callable[[float], None]
"""Called with the finished fraction of a measurement, 0 to 1."""


class Costs:
    """The cost curve of passes; this one is constant."""

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> None:
        """Measure all of it unless it is known. seconds: in any case, for this time."""

    def improve(self) -> None:
        """Measure what is needed, if it is unknown. Nothing else may use the models, here too."""

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""

    def learn(self, step: StepStats) -> None:
        """Learn from a step without prefill."""


COMPARISONS = 15
"""Comparisons whose median corrects a size: it tolerates seven outliers."""

RECENT = 4
"""Last passes of the main model that give the machine's current pace, which changes in seconds."""

STRENGTH = 0.5
"""The exponent of each correction, a damping."""


class LiveCurve(Costs):
    """A measured curve, corrected by the passes that run.

    A pass takes the time of the curve times the machine's current pace, which is common to all
    passes. So passes of one size, and all passes of the draft model, are compared with recent ones
    of other sizes. A common slowdown changes nothing, and a size that runs alone is not corrected.
    """

    def __init__(self, measured: CostCurve) -> None:
        self.take(measured)

    def take(self, measured: CostCurve) -> None:
        """Begin with a measured curve, without corrections."""
        self.curve = self.measured = measured
        # By size of passes of the main model; 0 for the draft model's passes.
        self._factors: dict[int, float] = {}
        self._compared: dict[int, list[float]] = defaultdict(list)
        # Sizes of the last passes, and how many times as long as in the curve.
        self._last: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._last_size: dict[Role, int] = {}
        self._changes: list[float] = []

    def learn(self, step: StepStats) -> None:
        """Learn from a step without prefill."""
        done, main, draft = step.main, self.curve.main, self.curve.draft
        drafts = [each for each in step.drafts if each.is_usual]
        if draft is not None and drafts:
            expected = sum(self._expected("draft", draft, each) for each in drafts)
            self._compare(0, sum(each.seconds for each in drafts) / expected)
        if self._last and self._changes_size("main", main, done):
            pace = median(ratio for _, ratio in self._last)
            self._learn_change(done.seconds / pace - main.at(done.num_tokens, done.num_read))
        size = min(GRID, key=lambda size: abs(size - done.num_tokens))
        ratio = done.seconds / self._expected("main", main, done)
        self._compare(size, ratio)
        self._last.append((size, ratio))

    def set_static(self, role: Role, sizes: frozenset[int], saved: float) -> None:
        """Set a model's static shapes, each of which saves `saved` seconds."""
        self.measured = self.measured.with_static(role, sizes, saved)
        self._correct()

    def _changes_size(self, role: Role, passes: PassCurve, done: PassStats) -> bool:
        size = done.num_tokens
        return size not in passes.static and size != self._last_size.get(role)

    def _learn_change(self, seconds: float) -> None:
        """Correct what a change of size takes, which was measured in few passes."""
        self._changes.append(seconds)
        if len(self._changes) == COMPARISONS:
            main = self.measured.main
            change = min(max(median(self._changes), 0.0), main.at(1))
            self._changes = []
            self.measured = replace(self.measured, main=replace(main, change=change))
            self._correct()

    def _expected(self, role: Role, passes: PassCurve, done: PassStats) -> float:
        """Seconds of a pass by the curve."""
        seconds = passes.at(done.num_tokens, done.num_read)
        seconds += passes.change * self._changes_size(role, passes, done)
        if done.num_tokens not in passes.static:
            self._last_size[role] = done.num_tokens
        return seconds

    def _compare(self, size: int, ratio: float) -> None:
        others = [other for last, other in self._last if last != size]
        if not others:
            return
        self._compared[size].append(ratio / median(others))
        if len(self._compared[size]) == COMPARISONS:
            factor = median(self._compared.pop(size)) ** STRENGTH
            self._factors[size] = self._factors.get(size, 1.0) * factor
            self._correct()

    def _correct(self) -> None:
        """Multiply the measured curve. The mean of the main model's factors is 1.

        Otherwise two sizes that are compared only with each other could drift together.
        """
        factors = {size: factor for size, factor in self._factors.items() if size}
        mean = geometric_mean(factors.values()) if factors else 1.0
        main, draft = self.measured.main, self.measured.draft
        main = main.times({size: factor / mean for size, factor in factors.items()})
        if draft is not None:
            draft = draft.times(dict.fromkeys(draft.seconds, self._factors.get(0, mean) / mean))
        self.curve = replace(self.measured, main=main, draft=draft)
