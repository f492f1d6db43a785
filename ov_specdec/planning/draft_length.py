"""Offers, estimates, plans and policies of draft lengths."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import accumulate, repeat
from operator import mul

import numpy as np

from ov_specdec.options.generation import MAX_REQUESTED_LENGTH
from ov_specdec.planning.acceptance import MODEL, Acceptance, Counts
from ov_specdec.planning.costs import CostCurve, Costs
from ov_specdec.results.stats import Reason, RoundStats

HEURISTIC_START = 5

HORIZON = 24
"""Steps over which throughputs, the rate and the costs of home sizes are taken: 12 and 64 differ by
less than 0.3 % in the replay."""

MAX_PLANNED_LENGTH = 15
"""Maximum draft tokens of a planned round: with the token before them they fill a pass over 16."""


@dataclass(frozen=True)
class Offer:
    """What a source can draft next.

    confidence: in each draft token of a match; one of a few values, since acceptance is learnt for
    each. token: the first one of a match: whether it would have been accepted is learnt at no cost,
    without a probe. takes_one_pass: a parallel draft, all of whose tokens take one pass of the
    draft model, instead of one each.
    """

    source: str = ""
    confidence: float | None = None
    token: int | None = None
    takes_one_pass: bool = False

    @property
    def is_match(self) -> bool:
        """Whether its tokens are a match in a text, which takes no pass of a draft model."""
        return self.confidence is not None


Offers = tuple[Offer, ...]
"""The offers of a sequence's drafter, at least one; the plan takes one of them."""


@dataclass(frozen=True)
class Plan:
    """The draft of one sequence in the next round.

    length: maximum draft tokens; 0 drafts nothing. reason: of the length, in one word, for the
    statistics. offer: the one that is taken, if the length is not 0. acceptance: see `Estimate`.
    """

    length: int
    reason: Reason
    offer: Offer = Offer()
    acceptance: tuple[float, ...] = ()

    def within(self, room: int) -> "Plan":
        """The same plan, with at most `room` draft tokens."""
        return self if self.length <= room else replace(self, length=max(room, 0))


NO_PLAN = Plan(0, "")
"""For rounds without a planned draft."""

FULL = Plan(0, "full")
"""For rounds with room for one token only, the main model's own."""


@dataclass(frozen=True)
class Estimate:
    """What the next draft of a sequence is worth, and what it costs.

    acceptance: the probability that the first n draft tokens are all accepted, from n = 1 to
    `MAX_PLANNED_LENGTH`. num_skipped: tokens that the draft model's cache lacks. is_hopeful: the
    last probe was accepted. throughput: tokens that recent steps gave the sequence, on average.
    """

    offer: Offer
    acceptance: tuple[float, ...]
    num_skipped: int = 1
    is_hopeful: bool = False
    throughput: float = 1.0


class Policy(ABC):
    """Gives the draft lengths of one sequence, or what the planner needs to choose them.

    is_planned: whether the planner chooses draft lengths and sizes of passes.
    """

    is_planned = False

    @abstractmethod
    def answer(self, offers: Offers) -> Plan | Estimate:
        """The plan for the next round, or an estimate for the planner."""

    def update(self, stats: RoundStats) -> None:  # noqa: B027
        """Learn from the last round."""


@dataclass(frozen=True)
class ConstantLength(Policy):
    """The same length in every round."""

    length: int

    def answer(self, offers: Offers) -> Plan:
        """The same plan for the first offer."""
        return Plan(self.length, "constant", offers[0])


@dataclass
class HeuristicLength(Policy):
    """Two more after a round in which all draft tokens were accepted, else one fewer, at least 1.

    It grows up to the longest draft of a request. Source: assisted generation in transformers
    (`num_assistant_tokens_schedule="heuristic"`).
    """

    length: int = HEURISTIC_START

    def answer(self, offers: Offers) -> Plan:
        """The same plan for the first offer."""
        return Plan(self.length, "heuristic", offers[0])

    def update(self, stats: RoundStats) -> None:
        """Lengthen or shorten; ignores rounds without draft tokens."""
        if stats.num_accepted < stats.num_drafted:
            self.length = max(self.length - 1, 1)
        elif stats.num_drafted:
            self.length = max(self.length, min(self.length + 2, MAX_REQUESTED_LENGTH))


def best_speed(estimate: Estimate, curve: CostCurve) -> float:
    """Tokens per second with the best draft length, if all rounds are alike.

    Source: Leviathan et al., section 3.5 (arXiv 2211.17192).
    """
    seconds = curve.main.by_size(MAX_PLANNED_LENGTH + 1)[1:]
    if curve.draft is not None and estimate.offer.takes_one_pass:
        seconds[1:] += curve.draft.varying(np.cumsum(np.add(1.0, estimate.acceptance)))
    elif not estimate.offer.is_match:
        seconds += curve.drafting[0] * np.arange(MAX_PLANNED_LENGTH + 1)
    return float((np.cumsum([1.0, *estimate.acceptance]) / seconds).max())


class PlannedLength(Policy):
    """Leaves the length to the planner, and estimates what a draft of its sequence is worth.

    common: the counts of sequences of this kind; this one adds to them. costs: of passes, by which
    offers are compared.
    """

    is_planned = True

    def __init__(self, common: Counts, costs: Costs) -> None:
        self._acceptance, self._costs = Acceptance(common), costs
        self._num_skipped, self._is_hopeful, self._throughput = 1, False, 1.0

    def answer(self, offers: Offers) -> Estimate:
        """The estimate of the offer that would be fastest if all rounds were like the next."""
        estimates = [self._estimate(offer) for offer in offers]
        if len(estimates) == 1:
            return estimates[0]
        curve = self._costs.curve
        return max(estimates, key=lambda each: best_speed(each, curve))

    def _estimate(self, offer: Offer) -> Estimate:
        rate = self._acceptance.rate(offer.source, offer.confidence)
        acceptance = tuple(accumulate(repeat(rate, MAX_PLANNED_LENGTH), mul))
        return Estimate(offer, acceptance, self._num_skipped, self._is_hopeful, self._throughput)

    def update(self, stats: RoundStats) -> None:
        """Count accepted draft tokens."""
        if stats.reason == "prefill":
            self._num_skipped = stats.cached_tokens + stats.pass_tokens
            return
        self._throughput += (stats.num_generated - self._throughput) / HORIZON
        drafted = stats.source == MODEL and stats.num_drafted > 0
        self._num_skipped = 1 if drafted else self._num_skipped + stats.num_generated
        self._is_hopeful = stats.reason == "probe" and stats.num_accepted > 0
        self._acceptance.learn(stats)
