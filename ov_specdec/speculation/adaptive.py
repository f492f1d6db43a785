"""The draft length with the best expected tokens per second: costs by curve, acceptance as seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from ov_specdec.costs import SIZES, Costs
from ov_specdec.speculation.acceptance import Acceptance, Common
from ov_specdec.speculation.draft_length import Plan
from ov_specdec.stats import RoundStats

MODEL = "model"

LENGTHS = range(SIZES[-1])
"""Numbers of candidates to choose from: with the token before them they fit the largest size."""

ENDS = tuple(size - 1 for size in SIZES[1:])

HORIZON = 64
"""Rounds that a new home size has to earn the change to it: acceptance is known no longer."""

SPENT_ON_PROBES = 0.01
"""Part of the time for trying again what does not pay: less than what noise hides."""

SAME_CONTEXT = 64
"""Cached tokens that a text may grow by until passes are looked up again: they change by 1 %."""


@dataclass(frozen=True)
class Offer:
    """What a source's candidates promise, each list by their number n.

    alive: the probability that n are all accepted. tokens: to expect of a round with n.
    seconds: of drafting n.
    """

    alive: list[float]
    tokens: list[float]
    seconds: list[float]


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
        self._offers: dict[float | None, Offer] = {}
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
        if not self._rate:
            self._settle()
        match = None if source == MODEL else confidence
        prices, offer = self._prices(), self._offer(match)
        best, gain = self._best(offer, prices)
        expected = tuple(offer.alive[1:])
        if match is not None:
            if self._drafts and self._best(self._offer(None), prices)[1] > gain:
                return Plan(0, "outbid")
            return Plan(best, "pays" if best else "loses", expected=expected)
        if best:
            floors = self._floors(offer, prices)
            calibrated = self._acceptance.calibrated
            return Plan(len(floors), "pays", self._min_confidence, expected, floors, calibrated)
        if self._probing or self._common.credit >= self._probe_seconds(prices):
            return Plan(1, "probe", expected=expected)
        return Plan(0, "loses")

    def pass_size(self, num_tokens: int) -> int:
        """The size that costs least, with the change to it and from it to the home size."""
        if num_tokens > SIZES[-1]:
            return num_tokens
        return min((num_tokens, *(s for s in SIZES if s > num_tokens)), key=self._price)

    def update(self, stats: RoundStats) -> None:
        """Learn acceptance from a round, and choose the home size."""
        if stats.reason == "prefill":
            self._unread = stats.cached_tokens + stats.pass_tokens
            self._look_up_costs(self._unread)
            return
        self._book(stats)
        self._size = stats.pass_tokens
        match = stats.match_confidence if stats.declined is None else stats.declined[1]
        for kind in self._mix | {match: 0.0}:
            share = self._mix.get(kind, 0.0)
            self._mix[kind] = share + ((kind == match) - share) / HORIZON
        self._acceptance.learn(stats)
        self._offers.pop(stats.match_confidence, None)
        self._offers.pop(match, None)
        if abs(stats.cached_tokens - self._cached) > SAME_CONTEXT:
            self._look_up_costs(stats.cached_tokens)
        self._settle()

    def _look_up_costs(self, num_cached: int) -> None:
        curve = self._costs.curve
        self._cached = num_cached
        self._draft = curve.draft
        self._change = curve.main.change
        self._seconds = [curve.main.at(n + 1, num_cached) for n in LENGTHS]
        self._start, self._step, self._again = curve.drafting(num_cached)
        self._offers.clear()

    def _offer(self, match: float | None) -> Offer:
        """What a match that is so sure promises, or the draft model where there is none."""
        if match not in self._offers:
            source = self._lookup if match is not None else MODEL
            acceptance = self._acceptance.by_place(source, match, len(LENGTHS) - 1)
            alive = list(accumulate(acceptance, mul, initial=1.0))
            seconds = [0.0] * len(LENGTHS)
            if match is None:
                seconds[1:] = [
                    self._start + n * self._step + alive[n] * self._again for n in LENGTHS[1:]
                ]
            self._offers[match] = Offer(alive, list(accumulate(alive)), seconds)
        return self._offers[match]

    def _best(self, offer: Offer, prices: Sequence[float]) -> tuple[int, float]:
        """The best number of candidates, and what it gains over the price of its time."""
        gains = [
            tokens - self._rate * (seconds + price)
            for tokens, seconds, price in zip(offer.tokens, offer.seconds, prices, strict=True)
        ]
        best = max(LENGTHS, key=gains.__getitem__)
        return best, gains[best]

    def _floors(self, offer: Offer, prices: Sequence[float]) -> tuple[float, ...]:
        """How probable n candidates have to be for one more to pay, from n = 1 on, up to the end.

        One more may pay only together with those that fill up a larger size.
        """
        costs = [
            self._rate * (n * self._step + price) for n, price in zip(LENGTHS, prices, strict=True)
        ]
        floors: list[float] = []
        for n in LENGTHS[1:-1]:
            alive, tokens, cost = offer.alive[n], offer.tokens[n], costs[n]
            ends = (n + 1, *(end for end in ENDS if end > n + 1))
            # Else tokens after n are certain not to come.
            gains = [(end, offer.tokens[end] - tokens) for end in ends]
            floor = min((costs[end] - cost) * alive / gain if gain else 1.0 for end, gain in gains)
            floors.append(floor)
            if floor >= 1.0:
                return tuple(floors)
        return (*floors, 1.0)

    def _price(self, size: int) -> float:
        """Seconds of a pass of this size now, with the changes of size that it entails."""
        changes = (size != self._size) + (size != self._home)
        return self._seconds[size - 1] + changes * self._change

    def _prices(self) -> list[float]:
        """The least seconds of a pass over n candidates and the token before them, by n."""
        prices, least = [0.0] * len(LENGTHS), float("inf")
        for n in reversed(LENGTHS):
            prices[n] = min(self._price(n + 1), least)
            if n + 1 in SIZES:
                least = prices[n]
        return prices

    def _settle(self) -> None:
        """Choose the home size, and the rate of tokens that is the price of a second."""
        rate = self._rate or 1.0 / self._seconds[0]
        rates = dict.fromkeys(SIZES, 0.0)
        totals = {size: [0.0, 0.0] for size in SIZES}
        for match, share in self._mix.items():
            offers = [self._offer(None)] if self._drafts else []
            offers += [self._offer(match)] if match is not None else []
            gain, tokens, seconds = 1.0, 1.0, 0.0
            for n in LENGTHS:
                for offer in offers:
                    if offer.tokens[n] - rate * offer.seconds[n] > gain:
                        tokens, seconds = offer.tokens[n], offer.seconds[n]
                        gain = tokens - rate * seconds
                if n + 1 in totals:
                    totals[n + 1][0] += share * tokens
                    totals[n + 1][1] += share * (seconds + self._seconds[n])
        rates = {size: tokens / seconds for size, (tokens, seconds) in totals.items()}
        best = max(rates, key=rates.__getitem__)
        home = self._home or best
        if rates[best] > rates[home] * (1.0 + self._change / self._seconds[home - 1] / HORIZON):
            home = best
        self._home, self._rate = home, rates[home]

    def _probe_seconds(self, prices: Sequence[float]) -> float:
        """What it takes to draft and verify one candidate, beyond a plain pass."""
        if self._draft is None:
            return float("inf")
        return self._draft.at(self._unread, self._cached) + prices[1] - prices[0]

    def _book(self, stats: RoundStats) -> None:
        """Save time for probes while nothing is drafted, and charge what they lose."""
        plain = self._seconds[0]
        if stats.reason == "probe":
            lost = self._probe_seconds(self._prices()) - stats.num_accepted * plain
            self._common.credit -= lost
            self._probing = stats.num_accepted > 0
        elif stats.num_drafted == 0:
            self._common.credit += SPENT_ON_PROBES * plain
        drafted = stats.source == MODEL and stats.num_drafted > 0
        self._unread = 1 if drafted else self._unread + stats.num_generated
