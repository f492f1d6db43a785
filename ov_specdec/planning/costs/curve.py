"""Cost curves: seconds of a pass by its tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Sizes of measured passes over one sequence; each takes time to measure."""

LARGER = (24, 32, 48, 64, 96, 128, 192, 256)
"""Sizes of passes over several sequences: two are measured, all are corrected in use."""

GRID = (*SIZES, *LARGER)
"""All sizes of the curve."""

LONGEST = 1024
"""Tokens of the longest distinguished pass: twice the longest chunk of a prefill."""

MOST_SAVED = 0.5
"""Maximum plausible saving of a static shape, in cheapest passes: measured 0.13 to 0.25."""

Role = Literal["main", "draft"]
"""The model of a pass."""


@dataclass(frozen=True)
class PassCurve:
    """Passes of one model.

    seconds: by tokens in the pass. change: extra seconds of a pass with another size than the
    previous one, because OpenVINO prepares the model for new shapes. per_sequence: seconds that
    each sequence beyond the first adds to a pass over as many tokens. saved: seconds that a static
    shape saves at any size, since OpenVINO need not prepare it. static: sizes of current static
    shapes, which have no change cost.
    """

    seconds: Mapping[int, float]
    change: float = 0.0
    per_sequence: float = 0.0
    saved: float = 0.0
    static: frozenset[int] = frozenset()

    def at(self, num_tokens: int, num_sequences: int = 1) -> float:
        """Seconds of a pass over `num_tokens`; positive."""
        seconds = float(self._by_size[min(num_tokens, LONGEST)])
        return seconds + self.per_sequence * (num_sequences - 1)

    def by_size(self, first: int, last: int, num_sequences: int = 1) -> NDArray[np.floating]:
        """Seconds of passes over `first` to `last` tokens; constant beyond the longest."""
        result: NDArray[np.floating] = self._by_size[min(first, LONGEST) : last + 1]
        if len(result) <= last - first:
            result = np.pad(result, (0, last - first + 1 - len(result)), "edge")
        return result + self.per_sequence * (num_sequences - 1)

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
        # A disturbed trial cannot make passes free.
        saved = min(self.saved, MOST_SAVED * min(seconds))
        result[[size for size in self.static if size <= LONGEST]] -= saved
        return result

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
        passes = self.main if role == "main" else self.draft
        if passes is None:
            return self
        passes = replace(passes, static=sizes, saved=saved)
        return replace(self, main=passes) if role == "main" else replace(self, draft=passes)

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
    PassCurve({size: 1.0 + 0.1 * (size - 1) for size in SIZES}), PassCurve({1: 0.1})
)
"""The nominal cost curve, in plain passes, for draft lengths that must not depend on measurements.

A draft token and each further token cost a tenth of a plain pass, between pairs measured with AMX
(0.08 and 0.06 for the embedded pair) and without (0.09 and 0.13).
"""
