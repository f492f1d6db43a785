"""What passes cost: seconds by their tokens, by what they read, and by changes of their size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ov_specdec.results.stats import PassStats

GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)
"""Sizes whose seconds are known or estimated, with lines between them."""

LONGEST = GRID[-1]
"""Tokens of the longest distinguished pass: twice the longest chunk of a prefill."""

Role = Literal["main", "draft"]
"""The model of a pass."""

Seconds = Annotated[float, Field(ge=0.0, lt=86_400.0)]
"""No pass takes a day."""


@dataclass(frozen=True)
class PassCurve:
    """Passes of one model.

    seconds: by tokens in the pass. change: extra seconds of a pass with another size than the
    previous one, because OpenVINO prepares the model for new shapes. per_read: seconds to read a
    cached token for one token of a pass. static: sizes of current static shapes, which have no
    change cost; not kept, as each process compiles its own. static_factor: how many times as long
    their passes take, since OpenVINO need not prepare them. resumed: extra seconds of a draft
    model's first pass after the main model's, which has filled the processor's caches.
    `LearnedCosts` and `Ranking` build on a pass being linear in what it reads.
    """

    seconds: Annotated[Mapping[int, Annotated[Seconds, Field(gt=0.0)]], Field(min_length=1)]
    change: Seconds = 0.0
    per_read: Seconds = 0.0
    static: Annotated[frozenset[int], Field(exclude=True)] = frozenset()
    static_factor: Annotated[float, Field(ge=0.1, le=2.0)] = 1.0
    resumed: Seconds = 0.0

    def at(self, num_tokens: int, num_read: int = 0) -> float:
        """Seconds of a pass over `num_tokens`; positive.

        num_read: the sum over them of the cached tokens that each reads.
        """
        return float(self._by_size[min(num_tokens, LONGEST)]) + self.per_read * num_read

    def reading(self, num_tokens: int) -> float:
        """Seconds to read so many tokens of a prompt, in as many passes as that takes."""
        full, rest = divmod(num_tokens, LONGEST)
        passes = full * self.at(LONGEST) + self.at(rest) * (rest > 0)
        return passes + self.per_read * num_tokens**2 / 2

    def by_size(self, last: int, num_read: int = 0) -> NDArray[np.floating]:
        """Seconds of passes over 0 to `last` tokens; constant beyond the longest."""
        seconds: NDArray[np.floating] = self._by_size.take(np.arange(last + 1), mode="clip")
        return seconds + self.per_read * num_read

    def varying(self, num_tokens: NDArray[np.floating]) -> NDArray[np.floating]:
        """Seconds of lone passes whose size varies, by their mean number of tokens; 0 is no pass.

        Static shapes are near, and passes padded to them; else each changes the size.
        """
        extra = self.resumed + (0.0 if self.static else self.change)
        seconds: NDArray[np.floating]
        seconds = np.interp(num_tokens, np.arange(LONGEST + 1), self._by_size) + extra
        return np.where(num_tokens > 0, seconds, 0.0)

    def if_static(self, sizes: NDArray[np.integer], num_read: int) -> NDArray[np.floating]:
        """Seconds of passes of these sizes if all had static shapes."""
        seconds: NDArray[np.floating] = self._dynamic.take(sizes, mode="clip") * self.static_factor
        return seconds + self.per_read * num_read

    @cached_property
    def _by_size(self) -> NDArray[np.floating]:
        """By tokens, from 0."""
        result = self._dynamic.copy()
        result[[size for size in self.static if size <= LONGEST]] *= self.static_factor
        return result

    @cached_property
    def _dynamic(self) -> NDArray[np.floating]:
        """Without static shapes: linear between measurements, with the mean slope after the last.

        The slope of the last two would be too low: 0.6 ms a token on the embedded pair, where
        passes over 16 sequences take 1.2, and the mean slope is 0.9.
        """
        sizes, tokens = sorted(self.seconds), np.arange(LONGEST + 1)
        seconds = [self.seconds[size] for size in sizes]
        slope = (seconds[-1] - seconds[0]) / max(sizes[-1] - sizes[0], 1)
        result: NDArray[np.floating] = np.interp(tokens, sizes, seconds)
        return result + np.maximum(tokens - sizes[-1], 0) * max(slope, 0.0)


@dataclass(frozen=True)
class CostCurve:
    """The costs of a round: passes of the main model, and of the draft model if there is one.

    It excludes lookups in the text, which take some ten microseconds, and run before the planner.
    is_measured: whether passes of all sizes were timed, not only those that use needed.
    """

    main: PassCurve
    draft: PassCurve | None = None
    is_measured: bool = False

    @cached_property
    def draft_rows(self) -> int:
        """Rows of a draft model's pass over the last token of one sequence: 1, or with a spare one.

        After a fully accepted draft, a pass feeds two tokens, the last draft token and the main
        model's own. If all have two, no size changes: that took 7 of 23 ms with 0.5 B parameters
        and AVX-512, where a spare row took less than one. Three draft tokens, of which 0.7 are
        accepted, are full drafts in a third of rounds, so four spare rows cost one change.
        """
        if self.draft is None:
            return 1
        if static := self.draft.static & {1, 2}:
            return min(static)
        return 2 if 4 * (self.draft.at(2) - self.draft.at(1)) < self.draft.change else 1

    @cached_property
    def drafting(self) -> tuple[float, float, float]:
        """Seconds of drafting: per draft token, per draft, and after a fully accepted one."""
        if self.draft is None:
            return 0.0, 0.0, 0.0
        step, pair = self.draft.at(self.draft_rows), self.draft.at(2)
        changes = 2 * self.draft.change if not self.draft.static & {1, 2} else 0.0
        return step, self.draft.resumed, 0.0 if self.draft_rows == 2 else pair - step + changes


NOMINAL = CostCurve(
    PassCurve({size: 1.0 + 0.1 * (size - 1) for size in GRID}),
    PassCurve({size: 0.1 + 0.01 * (size - 1) for size in GRID}),
)
"""Costs in plain passes: for draft lengths that must not depend on measurements, and before a
first pass.

A draft token and each further token cost a tenth of a plain pass, between pairs measured with AMX
(0.08 and 0.06 for the embedded pair) and without (0.09 and 0.13).
"""

Progress = Callable[[float], None]
"""Called with the finished fraction of a measurement, 0 to 1."""


class Costs:
    """The costs of passes; these are constant."""

    is_learned = False
    """Whether the curve is in seconds of this machine."""

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> None:
        """Learn what use has not shown yet. seconds: for so long, in any case."""

    def keep(self) -> None:
        """Keep what was learned for later processes."""

    def learn(
        self, role: Role, passes: Sequence[PassStats], static: frozenset[int] = frozenset()
    ) -> None:
        """Learn from the passes of a model in one step. static: its current static shapes."""
