"""How many tokens to draft next."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ov_specdec.options import MAX_DRAFT_LENGTH
from ov_specdec.stats import RoundStats

HEURISTIC_START = 5

SAME_ACCEPTANCE = 0.04
"""A difference within which plans stay: it is known no better from some tens of draft tokens, and
to plan takes as long as a token of the embedded draft model."""


@dataclass(frozen=True)
class Plan:
    """How far one source may draft in the coming round.

    length: most draft tokens; 0 drafts nothing. reason: why so many, in one word, for the
    statistics. min_confidence: drafting ends after a draft token that its source gives less
    probability. expected: the probability that the first n draft tokens are all accepted, from n =
    1 on. floors: drafting also ends after n draft tokens once that probability is lower, as
    `acceptance` tells from the confidence in each; None: that is not looked at.
    """

    length: int
    reason: str
    min_confidence: float = 0.0
    expected: tuple[float, ...] = ()
    floors: tuple[float, ...] = ()
    acceptance: Callable[[float], float] | None = None

    @property
    def wants_confidence(self) -> bool:
        """Whether `ends_after` has to know how confident the source is."""
        return self.min_confidence > 0.0 or self.acceptance is not None

    def ends_after(self, confidences: Sequence[float]) -> bool:
        """Whether the next draft token would not pay, given the confidence in those so far."""
        if confidences[-1] < self.min_confidence:
            return True
        if self.acceptance is None:
            return False
        alive = math.prod(map(self.acceptance, confidences))
        return alive < self.floors[len(confidences) - 1]

    def within(self, room: int) -> "Plan":
        """The same plan, where only `room` draft tokens have a place."""
        return self if self.length <= room else replace(self, length=max(room, 0))


NO_PLAN = Plan(0, "")
"""Of rounds in which nobody was asked for draft tokens."""


@dataclass(frozen=True)
class Ask:
    """A drafter's question how far it may draft from one of its sources.

    confidence: in each draft token, where the source knows it beforehand.
    """

    source: str
    confidence: float | None = None


@dataclass(frozen=True)
class Bid:
    """What draft tokens of one sequence promise, where several sequences are planned together.

    alive: [n], the probability that the first n are all accepted, from n = 0 on, whatever room the
    sequence has. takes_passes: whether each takes a pass of the draft model. may_probe: a draft
    token that does not pay may be tried. min_confidence: see `Plan`.
    """

    alive: NDArray[np.floating]
    takes_passes: bool
    may_probe: bool = False
    min_confidence: float = 0.0

    @property
    def expected(self) -> tuple[float, ...]:
        """See `Plan`."""
        return tuple(self.alive[1:].tolist())

    def is_like(self, other: "Bid") -> bool:
        """Whether plans for the other one are as good for this one."""
        return (
            self.takes_passes == other.takes_passes
            and self.may_probe == other.may_probe
            and self.min_confidence == other.min_confidence
            and abs(self.alive[1] - other.alive[1]) <= SAME_ACCEPTANCE
        )


def ask(source: str, confidence: float | None = None) -> Generator[Ask, Plan, Plan]:
    """How a drafter waits for the answer to an `Ask`: `plan = yield from` this."""
    return (yield Ask(source, confidence))


class Policy(Protocol):
    """Chooses draft lengths; a new one is made for each generation."""

    def plan(self, source: str, confidence: float | None = None) -> Plan:
        """How far a source may draft in the coming round. See `Ask`."""
        ...

    def bid(self, ask: Ask) -> Bid | None:
        """What draft tokens promise, where several sequences are planned together.

        None where the plan is this sequence's own, whatever others do.
        """
        ...

    def pass_size(self, num_tokens: int) -> int:
        """Tokens that a verifying pass over `num_tokens` is to be padded to."""
        ...

    def update(self, stats: RoundStats) -> None:
        """Learn from the round that has just ended."""
        ...


@dataclass(frozen=True)
class ConstantLength:
    """The same length in every round. Implements `Policy`."""

    length: int
    min_confidence: float = 0.0

    def plan(self, source: str, confidence: float | None = None) -> Plan:  # noqa: ARG002
        """The same for every source."""
        return Plan(self.length, "constant", self.min_confidence)

    def bid(self, ask: Ask) -> None:
        """None: the length is given."""

    def pass_size(self, num_tokens: int) -> int:
        """No more than needed."""
        return num_tokens

    def update(self, stats: RoundStats) -> None:
        """Nothing to learn."""


@dataclass
class HeuristicLength:
    """Two more after a round in which all draft tokens were accepted, else one fewer, at least 1.

    Implements `Policy`. Source: assisted generation in transformers
    (`num_assistant_tokens_schedule="heuristic"`).
    """

    length: int = HEURISTIC_START
    min_confidence: float = 0.0

    def plan(self, source: str, confidence: float | None = None) -> Plan:  # noqa: ARG002
        """The same for every source."""
        return Plan(self.length, "heuristic", self.min_confidence)

    def bid(self, ask: Ask) -> None:
        """None: the length is given."""

    def pass_size(self, num_tokens: int) -> int:
        """No more than needed."""
        return num_tokens

    def update(self, stats: RoundStats) -> None:
        """Lengthen or shorten; a round without draft tokens teaches nothing."""
        if stats.num_drafted == 0:
            return
        if stats.num_accepted == stats.num_drafted:
            self.length = min(self.length + 2, MAX_DRAFT_LENGTH)
        else:
            self.length = max(self.length - 1, 1)
