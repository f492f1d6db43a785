"""The draft length with the best expected tokens per second: costs by curve, acceptance as seen."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ov_specdec.costs import SIZES, Costs
from ov_specdec.speculation.acceptance import Acceptance, Common
from ov_specdec.speculation.draft_length import Ask, Bid, Plan
from ov_specdec.stats import RoundStats

MODEL = "model"

LENGTHS = np.arange(SIZES[-1])
"""Numbers of candidates to choose from: with the token before them they fit the largest size."""

IS_SIZE = np.isin(LENGTHS + 1, SIZES)
LATER = LENGTHS[:, None] < LENGTHS
"""Pairs of lengths of which the second is larger."""

HORIZON = 64
"""Rounds that a new home size has to earn the change to it: by recorded drafts as good as 32 and
128, and 16 changes too often."""

SPENT_ON_PROBES = 0.01
"""Part of the time for trying again what does not pay: less than what noise hides."""

KEEP_PLANS = 4
"""Rounds between two plannings, which take 0.2 ms: a candidate moves acceptance by 3 % at most."""

SAME_CONTEXT = 64
"""Cached tokens that a text may grow by until passes are looked up again: they change by 1 %."""

TINY = 1e-9
"""Instead of probabilities of 0, by which nothing can be divided."""

Numbers = NDArray[np.floating]


@dataclass(frozen=True)
class Offer:
    """What a source's candidates promise, each array by their number n.

    alive: the probability that n are all accepted. tokens: to expect of a round with n.
    seconds: of drafting n.
    """

    alive: Numbers
    tokens: Numbers
    seconds: Numbers


class AdaptiveLength:
    """Drafts as much as yields most tokens per second. Implements `Policy`.

    If the first i candidates are accepted with probability s(i), a round with n of them adds
    1 + s(1) + ... + s(n) tokens (Leviathan et al., arXiv 2211.17192, section 3.1, where s(i) is a
    power of one acceptance rate). Of all n the one is taken with the greatest

        tokens(n) - rate * seconds(n),

    where `rate`, the price of a second, is the best rate of tokens that the text allows. n may be
    0. A pass has one of a few sizes, and is padded to it. To change the size costs time: as long as
    that is more than a longer pass costs, all rounds keep to one size, the home size.

    sources: where the drafter may take candidates from, first to last. costs: of passes,
    looked up while the text grows. common: what sequences of this kind taught; this one adds to it.
    """

    def __init__(
        self,
        sources: Sequence[str],
        costs: Costs,
        common: Common,
        min_confidence: float = 0.0,
    ) -> None:
        self._costs = costs
        self._common = common
        self._acceptance = Acceptance(common)
        self._min_confidence = min_confidence
        self._lookup = sources[0]
        self._drafts = MODEL in sources
        # Plans by the match and the last size, until costs and acceptance are looked at again.
        self._plans: dict[tuple[float | None, int], Plan] = {}
        self._bids: dict[float | None, Bid] = {}
        self._is_settled = False
        self._age = 0
        # How often there is a match, by how sure it is, and none: averages over recent rounds.
        self._mix: dict[float | None, float] = {None: 1.0}
        self._unread = 0
        """Tokens that the draft model has yet to be fed."""
        self._probing = False
        self._size = self._home = 0
        """Tokens of the last pass, and of those that most rounds have."""
        self._rate = 0.0
        self._look_up_costs(0)

    def plan(self, source: str, confidence: float | None = None) -> Plan:
        """The plan for the next round. confidence: that of a match; None for the draft model."""
        match = None if source == MODEL else confidence
        if not self._is_settled:
            self._settle()
        if (match, self._size) not in self._plans:
            self._plans[match, self._size] = self._make_plan(match)
        plan = self._plans[match, self._size]
        if match is None and plan.length == 0 and self._may_probe():
            return Plan(1, "probe")
        return plan

    def bid(self, ask: Ask) -> Bid | None:
        """What candidates promise; None where lengths must follow nothing but this sequence.

        None too where the plan leaves the round to the draft model.
        """
        if not self._costs.is_live:
            return None
        match = None if ask.source == MODEL else ask.confidence
        if match is not None and self._drafts and self.plan(ask.source, match).reason == "outbid":
            return None
        if match not in self._bids:
            alive = self._offer(match).alive
            model = match is None
            calibrated = self._acceptance.calibrated if model else None
            may_probe = model and self._may_probe()
            self._bids[match] = Bid(alive, model, may_probe, self._min_confidence, calibrated)
        return self._bids[match]

    def pass_size(self, num_tokens: int) -> int:
        """The size that costs least, with the change to it and from it to the home size."""
        if num_tokens > SIZES[-1]:
            return num_tokens
        return min((num_tokens, *(s for s in SIZES if s > num_tokens)), key=self._price)

    def update(self, stats: RoundStats) -> None:
        """Learn acceptance from a round, and plan anew from time to time."""
        if stats.reason == "prefill":
            self._unread = stats.cached_tokens + stats.pass_tokens
            self._look_up_costs(self._unread)
            self._is_settled = False
            return
        self._book(stats)
        self._size = stats.pass_tokens
        match = stats.match_confidence if stats.declined is None else stats.declined[1]
        for kind in self._mix | {match: 0.0}:
            share = self._mix.get(kind, 0.0)
            self._mix[kind] = share + ((kind == match) - share) / HORIZON
        self._acceptance.learn(stats)
        self._age += 1
        if self._age % KEEP_PLANS == 0:
            if stats.cached_tokens - self._cached > SAME_CONTEXT:
                self._look_up_costs(stats.cached_tokens)
            self._is_settled = False
            self._bids.clear()

    def _look_up_costs(self, num_cached: int) -> None:
        curve = self._costs.curve
        self._cached = num_cached
        self._change = curve.main.change
        self._seconds = np.array([curve.main.at(int(n) + 1, num_cached) for n in LENGTHS])
        self._draft = curve.draft
        self._start, self._step, self._again = curve.drafting(num_cached)

    def _offer(self, match: float | None) -> Offer:
        """What a match that is so sure promises, or the draft model where there is none."""
        source = self._lookup if match is not None else MODEL
        acceptance = self._acceptance.by_place(source, match, len(LENGTHS) - 1)
        alive = np.cumprod([1.0, *acceptance])
        seconds = np.zeros(len(LENGTHS))
        if match is None:
            seconds[1:] = (self._start + LENGTHS * self._step + alive * self._again)[1:]
        return Offer(alive, np.cumsum(alive), seconds)

    def _make_plan(self, match: float | None) -> Plan:
        prices, offer = self._prices(), self._offer(match)
        best, gain = self._best(offer, prices)
        expected = tuple(offer.alive[1:].tolist())
        if match is not None:
            if self._drafts and self._best(self._offer(None), prices)[1] > gain:
                return Plan(0, "outbid")
            return Plan(best, "pays" if best else "loses", expected=expected)
        if best == 0:
            return Plan(0, "loses")
        floors = self._floors(offer, prices)
        calibrated = self._acceptance.calibrated
        return Plan(len(floors), "pays", self._min_confidence, expected, floors, calibrated)

    def _best(self, offer: Offer, prices: Numbers) -> tuple[int, float]:
        """The best number of candidates, and what it gains over the price of its time."""
        gains = offer.tokens - self._rate * (offer.seconds + prices)
        best = int(gains.argmax())
        return best, float(gains[best])

    def _floors(self, offer: Offer, prices: Numbers) -> tuple[float, ...]:
        """How probable n candidates have to be for one more to pay, from n = 1 on, up to the end.

        One more may pay only together with those that fill up a larger size.
        """
        costs = self._rate * (LENGTHS * self._step + prices)
        more_cost = costs - costs[:, None]
        more_tokens = (offer.tokens - offer.tokens[:, None]) / np.maximum(offer.alive, TINY)[
            :, None
        ]
        needed = np.where(LATER, more_cost / np.maximum(more_tokens, TINY), 1.0).min(axis=1)
        end = int((needed[1:] >= 1.0).argmax()) + 1
        return tuple(needed[1 : end + 1].tolist())

    def _price(self, size: int) -> float:
        """Seconds of a pass of this size now, with the changes of size that it entails."""
        changes = (size != self._size) + (size != self._home)
        return float(self._seconds[size - 1]) + changes * self._change

    def _prices(self) -> Numbers:
        """The least seconds of a pass over n candidates and the token before them, by n."""
        sizes = LENGTHS + 1
        changes = (sizes != self._size).astype(float) + (sizes != self._home)
        own = self._seconds + changes * self._change
        padded = np.where(IS_SIZE, own, np.inf)
        prices: Numbers = np.minimum(own, np.minimum.accumulate(padded[::-1])[::-1])
        return prices

    def _settle(self) -> None:
        """Choose the home size, and the rate of tokens that is the price of a second."""
        rate = self._rate or 1.0 / self._seconds[0]
        tokens, seconds = np.zeros(len(LENGTHS)), self._seconds.copy()
        for match, share in self._mix.items():
            offers = [self._offer(None)] if self._drafts else []
            offers += [self._offer(match)] if match is not None else []
            best_gain = np.ones(len(LENGTHS))
            best_tokens, best_seconds = np.ones(len(LENGTHS)), np.zeros(len(LENGTHS))
            for offer in offers:
                gains = offer.tokens - rate * offer.seconds
                # A size has room for the best of all smaller numbers of candidates.
                highest = np.maximum.accumulate(gains)
                places = np.maximum.accumulate(np.where(gains == highest, LENGTHS, 0))
                better = highest > best_gain
                best_gain = np.where(better, highest, best_gain)
                best_tokens = np.where(better, offer.tokens[places], best_tokens)
                best_seconds = np.where(better, offer.seconds[places], best_seconds)
            tokens += share * best_tokens
            seconds += share * best_seconds
        rates = np.where(IS_SIZE, tokens / seconds, 0.0)
        best = int(rates.argmax())
        home = self._home - 1 if self._home else best
        if rates[best] > rates[home] * (1.0 + self._change / self._seconds[home] / HORIZON):
            home = best
        self._home, self._rate = home + 1, float(rates[home])
        self._plans.clear()
        self._is_settled = True

    def _may_probe(self) -> bool:
        return self._probing or self._common.credit >= self._probe_seconds()

    def _probe_seconds(self) -> float:
        """What it takes to draft and verify one candidate, beyond a plain pass."""
        if self._draft is None:
            return float("inf")
        prices = self._prices()
        reading = self._draft.at(self._unread, self._cached)
        return self._start + reading + float(prices[1] - prices[0])

    def _book(self, stats: RoundStats) -> None:
        """Save time for probes while nothing is drafted, and charge what they lose."""
        plain = float(self._seconds[0])
        if stats.reason == "probe":
            expected = self._probe_seconds() + plain
            # A step's time tells nothing of one probe among the rounds of others.
            alone = stats.num_sequences == 1
            spent = self._costs.spent(stats, expected) if alone else expected
            self._common.credit -= spent - stats.num_generated * plain
            self._probing = stats.num_accepted > 0
        elif stats.num_drafted == 0:
            self._common.credit += SPENT_ON_PROBES * plain / stats.num_sequences
        drafted = stats.source == MODEL and stats.num_drafted > 0
        self._unread = 1 if drafted else self._unread + stats.num_generated
