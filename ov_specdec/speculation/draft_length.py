"""How many tokens to draft next."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ov_specdec.options import MAX_DRAFT_LENGTH
from ov_specdec.stats import RoundStats

HEURISTIC_START = 5


@dataclass(frozen=True)
class Plan:
    """How far one source may draft in the coming round.

    length: most candidates; 0 drafts nothing. reason: why so many, for the statistics.
    min_confidence: drafting ends after a candidate that its source gives less probability.
    min_survival: it also ends once the probability that all candidates are accepted is lower, as
    `acceptance` tells from the confidence in each; None: that is not looked at.
    """

    length: int
    reason: str
    min_confidence: float = 0.0
    min_survival: float = 0.0
    acceptance: Callable[[float], float] | None = None

    @property
    def wants_confidence(self) -> bool:
        """Whether `ends_after` has to know how confident the source is."""
        return self.min_confidence > 0.0 or self.acceptance is not None

    def ends_after(self, confidences: Sequence[float]) -> bool:
        """Whether the next candidate would not pay, given the confidence in those so far."""
        if confidences[-1] < self.min_confidence:
            return True
        if self.acceptance is None:
            return False
        return math.prod(map(self.acceptance, confidences)) < self.min_survival

    def within(self, room: int) -> "Plan":
        """The same plan, where only `room` candidates have a place."""
        return self if self.length <= room else replace(self, length=max(room, 0))


NO_PLAN = Plan(0, "")
"""Of rounds in which nobody was asked for candidates."""


class Planner(Protocol):
    """Asked by a drafter for the plan of one of its sources."""

    def __call__(self, source: str, confidence: float | None = None) -> Plan:
        """The plan; confidence: of each candidate, where the source knows it beforehand."""
        ...


class Policy(Protocol):
    """Chooses draft lengths; a new one is made for each generation."""

    def plan(self, source: str, confidence: float | None = None) -> Plan:
        """How far a source may draft in the coming round. See `Planner`."""
        ...

    def pass_size(self, num_tokens: int) -> int:
        """Tokens that a verifying pass over `num_tokens` is to be padded to."""
        ...

    def update(self, stats: RoundStats) -> None:
        """Learn from the round that has just ended."""
        ...


def limited(policy: Policy, room: int) -> Planner:
    """The policy's plans, cut to the places that a sequence has left."""

    def plan(source: str, confidence: float | None = None) -> Plan:
        return policy.plan(source, confidence).within(room)

    return plan


@dataclass(frozen=True)
class ConstantLength:
    """The same length in every round. Implements `Policy`."""

    length: int
    min_confidence: float = 0.0

    def plan(self, source: str, confidence: float | None = None) -> Plan:  # noqa: ARG002
        """The same for every source."""
        return Plan(self.length, "constant", self.min_confidence)

    def pass_size(self, num_tokens: int) -> int:
        """No more than needed."""
        return num_tokens

    def update(self, stats: RoundStats) -> None:
        """Nothing to learn."""


@dataclass
class HeuristicLength:
    """Two more after a round in which all candidates were accepted, else one fewer, at least 1.

    Implements `Policy`. Source: assisted generation in transformers
    (`num_assistant_tokens_schedule="heuristic"`).
    """

    length: int = HEURISTIC_START
    min_confidence: float = 0.0

    def plan(self, source: str, confidence: float | None = None) -> Plan:  # noqa: ARG002
        """The same for every source."""
        return Plan(self.length, "heuristic", self.min_confidence)

    def pass_size(self, num_tokens: int) -> int:
        """No more than needed."""
        return num_tokens

    def update(self, stats: RoundStats) -> None:
        """Lengthen or shorten; a round without candidates teaches nothing."""
        if stats.num_drafted == 0:
            return
        if stats.num_accepted == stats.num_drafted:
            self.length = min(self.length + 2, MAX_DRAFT_LENGTH)
        else:
            self.length = max(self.length - 1, 1)
