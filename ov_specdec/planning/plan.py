"""What a drafter offers, what that is estimated to be worth, and the plan of a draft."""

from dataclasses import dataclass, replace

from ov_specdec.results.stats import Reason

HORIZON = 24
"""Steps over which throughputs and the worth of sizes are taken: 12 and 64 differ by less than
0.3 % in the replay."""

EXPECTED = 128
"""Tokens that a text is expected to have yet, or as many as it has, if those are more: what the
draft model has to read first pays within them, or waits."""

MAX_PLANNED_LENGTH = 15
"""Maximum draft tokens of a planned round: with the token before them they fill a pass over 16."""


@dataclass(frozen=True)
class Offer:
    """What a source can draft next.

    confidence: in each draft token of a source without a model, such as a match in a text; one of a
    few values, since acceptance is learnt for each. token: the first one of a match: whether it
    would have been accepted is learnt at no cost, without a probe. takes_one_pass: a parallel
    draft, all of whose tokens take one pass of the draft model, instead of one each. num_unread:
    tokens of the text that the draft model has to read first, the last one included.
    """

    source: str = ""
    confidence: float | None = None
    token: int | None = None
    takes_one_pass: bool = False
    num_unread: int = 1

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
    statistics. offer: the one that is taken, if the length is not 0. rate: see `Estimate`. seconds:
    expected of the main model's pass; 0 if unknown.
    """

    length: int
    reason: Reason
    offer: Offer = Offer()
    rate: float = 0.0
    seconds: float = 0.0

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

    rate: the probability that a draft token is accepted, if those before are. num_cached: tokens
    that each draft token reads. is_hopeful: the last probe was accepted. throughput: tokens that
    recent steps gave the sequence, on average. num_expected: tokens that it will have yet.
    """

    offer: Offer
    rate: float
    num_cached: int = 0
    is_hopeful: bool = False
    throughput: float = 1.0
    num_expected: int = EXPECTED
