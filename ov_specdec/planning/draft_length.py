"""How many tokens to draft next."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, repeat
from operator import mul
from typing import Protocol

from ov_specdec.options import MAX_DRAFT_LENGTH
from ov_specdec.planning.acceptance import MODEL, Acceptance, Common
from ov_specdec.planning.costs import SIZES
from ov_specdec.stats import RoundStats

HEURISTIC_START = 5

MOST = SIZES[-1] - 1
"""Draft tokens of a planned round, at most: with the token before them they fill the largest size
of one sequence."""


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

FULL = Plan(0, "full")
"""Of rounds that have room for the next token only, the main model's own."""

WAIT = Plan(0, "")
"""For those that are planned once others, which were outbid, have asked for their draft models."""


@dataclass(frozen=True)
class Ask:
    """A drafter's question how far it may draft from one of its sources.

    confidence: in each draft token, where the source knows it beforehand; one of a few values,
    since acceptance is learnt by it.
    """

    source: str
    confidence: float | None = None


@dataclass(frozen=True)
class Bid:
    """What draft tokens of one sequence promise.

    source, match: as asked; without a match the draft model drafts. acceptance: the probability
    that one is accepted if those before it are. rival: what the draft model promises in the place
    of a match. num_unread: tokens that the draft model has yet to be fed. is_hopeful: one that does
    not pay may be tried. min_confidence: see `Plan`. calibrated: the acceptance of a draft token by
    the draft model's confidence in it.
    """

    source: str
    match: float | None
    acceptance: float
    rival: "Bid | None" = None
    num_unread: int = 1
    is_hopeful: bool = False
    min_confidence: float = 0.0
    calibrated: Callable[[float], float] | None = None

    @property
    def takes_passes(self) -> bool:
        """Whether each draft token takes a pass of the draft model."""
        return self.match is None

    @property
    def expected(self) -> tuple[float, ...]:
        """See `Plan`."""
        return tuple(accumulate(repeat(self.acceptance, MOST), mul))


def ask(source: str, confidence: float | None = None) -> Generator[Ask, Plan, Plan]:
    """How a drafter waits for the answer to an `Ask`: `plan = yield from` this."""
    return (yield Ask(source, confidence))


class Policy(Protocol):
    """How many tokens one sequence drafts; a new one is made for each."""

    @property
    def is_planned(self) -> bool:
        """Whether it leaves that to the planner, and the size of passes too."""
        ...

    def answer(self, ask: Ask) -> Plan | Bid:
        """How far a source may draft in the coming round, or what its draft tokens promise."""
        ...

    def update(self, stats: RoundStats) -> None:
        """Learn from the round that has just ended."""
        ...


@dataclass(frozen=True)
class ConstantLength:
    """The same length in every round. Implements `Policy`."""

    length: int
    min_confidence: float = 0.0

    is_planned = False

    def answer(self, ask: Ask) -> Plan:  # noqa: ARG002
        """The same for every source."""
        return Plan(self.length, "constant", self.min_confidence)

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

    is_planned = False

    def answer(self, ask: Ask) -> Plan:  # noqa: ARG002
        """The same for every source."""
        return Plan(self.length, "heuristic", self.min_confidence)

    def update(self, stats: RoundStats) -> None:
        """Lengthen or shorten; a round without draft tokens teaches nothing."""
        if stats.num_drafted == 0:
            return
        if stats.num_accepted == stats.num_drafted:
            self.length = min(self.length + 2, MAX_DRAFT_LENGTH)
        else:
            self.length = max(self.length - 1, 1)


class AdaptiveLength:
    """Leaves the length to the planner: what is learnt of one sequence. Implements `Policy`.

    sources: where its drafter may take draft tokens from. common: what sequences of this kind
    taught; this one adds to it.
    """

    is_planned = True

    def __init__(self, sources: Sequence[str], common: Common, min_confidence: float = 0.0) -> None:
        self._acceptance = Acceptance(common)
        self._drafts = MODEL in sources
        self._min_confidence = min_confidence
        self._num_unread = 1
        self._has_found = False

    def answer(self, ask: Ask) -> Bid:
        """What the source has been worth so far."""
        rate = self._acceptance.rate(ask.source, ask.confidence)
        if ask.confidence is not None:
            rival = self.answer(Ask(MODEL)) if self._drafts else None
            return Bid(ask.source, ask.confidence, rate, rival)
        return Bid(
            ask.source,
            None,
            rate,
            num_unread=self._num_unread,
            is_hopeful=self._has_found or self._acceptance.is_open(ask.source),
            min_confidence=self._min_confidence,
            calibrated=self._acceptance.calibrated,
        )

    def update(self, stats: RoundStats) -> None:
        """Learn what was accepted."""
        if stats.reason == "prefill":
            self._num_unread = stats.cached_tokens + stats.pass_tokens
            return
        self._drafts &= not stats.draft_failed
        drafted = stats.source == MODEL and stats.num_drafted > 0
        self._num_unread = 1 if drafted else self._num_unread + stats.num_generated
        self._has_found = stats.reason == "probe" and stats.num_accepted > 0
        self._acceptance.learn(stats)
