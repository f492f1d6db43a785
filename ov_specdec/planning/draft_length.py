"""Plans, bids and policies of draft lengths."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, repeat
from operator import mul
from typing import Protocol

from ov_specdec.options import MAX_REQUESTED_LENGTH
from ov_specdec.planning.acceptance import MODEL, Acceptance, SharedCounts
from ov_specdec.planning.costs import SIZES
from ov_specdec.stats import RoundStats

HEURISTIC_START = 5

MOST = SIZES[-1] - 1
"""Maximum draft tokens of a planned round: with the token before them they fill the largest size of
one sequence."""


@dataclass(frozen=True)
class Plan:
    """The draft length of one source in the next round.

    length: maximum draft tokens; 0 drafts nothing. reason: of the length, in one word, for the
    statistics. min_confidence: drafting ends after a draft token with a lower probability.
    expected: the probability that the first n draft tokens are all accepted, from n = 1. floors:
    drafting also ends after n draft tokens once that probability, computed by `acceptance` from
    their confidences, is lower. acceptance: None for no such rule.
    """

    length: int
    reason: str
    min_confidence: float = 0.0
    expected: tuple[float, ...] = ()
    floors: tuple[float, ...] = ()
    acceptance: Callable[[float], float] | None = None

    @property
    def wants_confidence(self) -> bool:
        """Whether `ends_after` needs the confidences of the source."""
        return self.min_confidence > 0.0 or self.acceptance is not None

    def ends_after(self, confidences: Sequence[float]) -> bool:
        """Whether the next draft token would not pay, given the confidences so far."""
        if confidences[-1] < self.min_confidence:
            return True
        if self.acceptance is None:
            return False
        alive = math.prod(map(self.acceptance, confidences))
        return alive < self.floors[len(confidences) - 1]

    def within(self, room: int) -> "Plan":
        """The same plan, with at most `room` draft tokens."""
        return self if self.length <= room else replace(self, length=max(room, 0))


NO_PLAN = Plan(0, "")
"""For rounds without a planned draft."""

FULL = Plan(0, "full")
"""For rounds with room for one token only, the main model's own."""

WAIT = Plan(0, "")
"""For sequences that are planned later, once outbid ones have asked for their draft models."""


@dataclass(frozen=True)
class PlanRequest:
    """A drafter's request for a plan for one of its sources.

    confidence: in each draft token, if the source knows it in advance; one of a few values, since
    acceptance is learnt for each.
    """

    source: str
    confidence: float | None = None


@dataclass(frozen=True)
class Bid:
    """The expected value of one sequence's draft tokens.

    source, match: as in the `PlanRequest`; without a match the draft model drafts. acceptance: the
    probability that a draft token is accepted, given that those before are. rival: the bid of the
    draft model instead of a match. num_unread: tokens that the draft model's cache lacks.
    is_hopeful: a bid that does not pay may be tried. min_confidence: see `Plan`. calibrated: the
    acceptance of a draft token by the draft model's confidence.
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


def ask(source: str, confidence: float | None = None) -> Generator[PlanRequest, Plan, Plan]:
    """In a drafter, wait for the plan of a source: `plan = yield from` this."""
    return (yield PlanRequest(source, confidence))


class Policy(Protocol):
    """Chooses the draft lengths of one sequence."""

    @property
    def is_planned(self) -> bool:
        """Whether the planner chooses draft lengths and sizes of passes."""
        ...

    def answer(self, request: PlanRequest) -> Plan | Bid:
        """The plan for a source in the next round, or a bid for the planner."""
        ...

    def update(self, stats: RoundStats) -> None:
        """Learn from the last round."""
        ...


@dataclass(frozen=True)
class ConstantLength:
    """The same length in every round. Implements `Policy`."""

    length: int
    min_confidence: float = 0.0

    is_planned = False

    def answer(self, request: PlanRequest) -> Plan:  # noqa: ARG002
        """The same plan for every source."""
        return Plan(self.length, "constant", self.min_confidence)

    def update(self, stats: RoundStats) -> None:
        """Nothing to learn."""


@dataclass
class HeuristicLength:
    """Two more after a round in which all draft tokens were accepted, else one fewer, at least 1.

    It grows up to the longest draft of a request. Implements `Policy`. Source: assisted generation
    in transformers (`num_assistant_tokens_schedule="heuristic"`).
    """

    length: int = HEURISTIC_START
    min_confidence: float = 0.0

    is_planned = False

    def answer(self, request: PlanRequest) -> Plan:  # noqa: ARG002
        """The same plan for every source."""
        return Plan(self.length, "heuristic", self.min_confidence)

    def update(self, stats: RoundStats) -> None:
        """Lengthen or shorten; ignores rounds without draft tokens."""
        if stats.num_drafted == 0:
            return
        if stats.num_accepted == stats.num_drafted:
            self.length = max(self.length, min(self.length + 2, MAX_REQUESTED_LENGTH))
        else:
            self.length = max(self.length - 1, 1)


class AdaptiveLength:
    """Bids with the acceptance of one sequence, so that the planner chooses. Implements `Policy`.

    sources: of its drafter. common: the counts of sequences of this kind; this one adds to them.
    """

    is_planned = True

    def __init__(
        self, sources: Sequence[str], common: SharedCounts, min_confidence: float = 0.0
    ) -> None:
        self._acceptance = Acceptance(common)
        self._drafts = MODEL in sources
        self._min_confidence = min_confidence
        self._num_unread = 1
        self._has_found = False

    def answer(self, request: PlanRequest) -> Bid:
        """The bid of the source."""
        rate = self._acceptance.rate(request.source, request.confidence)
        if request.confidence is not None:
            rival = self.answer(PlanRequest(MODEL)) if self._drafts else None
            return Bid(request.source, request.confidence, rate, rival)
        return Bid(
            request.source,
            None,
            rate,
            num_unread=self._num_unread,
            is_hopeful=self._has_found or self._acceptance.is_open(request.source),
            min_confidence=self._min_confidence,
            calibrated=self._acceptance.calibrated,
        )

    def update(self, stats: RoundStats) -> None:
        """Count accepted draft tokens."""
        if stats.reason == "prefill":
            self._num_unread = stats.cached_tokens + stats.pass_tokens
            return
        self._drafts &= not stats.draft_failed
        drafted = stats.source == MODEL and stats.num_drafted > 0
        self._num_unread = 1 if drafted else self._num_unread + stats.num_generated
        self._has_found = stats.reason == "probe" and stats.num_accepted > 0
        self._acceptance.learn(stats)
