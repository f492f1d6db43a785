"""The draft length with the best expected tokens per second: costs by curve, acceptance as seen."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ov_specdec.planning.acceptance import MODEL, Acceptance, Common
from ov_specdec.planning.costs import SIZES, Costs
from ov_specdec.planning.draft_length import Ask, Bid, Plan
from ov_specdec.stats import RoundStats

LENGTHS = np.arange(SIZES[-1])
"""Numbers of draft tokens to choose from: with the token before them they fit the largest size."""

HORIZON = 64
"""Rounds that a new home size has to earn the change to it, and over which kinds of matches are
counted. On recorded drafts (`tests/benchmarks/replay.py`) 16 to 128 are as good."""

SPENT_ON_PROBES = 0.01
"""Part of the time for trying again what does not pay: less than what noise hides."""

PROBE_FACTOR = 4.0
"""How many times as long as the curve says probes take, whose passes are of rare sizes: 3 to 7."""

KEEP_PLANS = 4
"""Rounds between two plannings, which take 0.2 ms; on recorded drafts as good as 2 and 8."""

SAME_CONTEXT = 64
"""Cached tokens that a text may grow by until passes are looked up again: they change by 1 %."""

TINY = 1e-9
"""Instead of probabilities of 0, by which nothing can be divided."""

Numbers = NDArray[np.floating]
Match = tuple[str, float]
"""The source that has one, and how sure it is of it."""


@dataclass(frozen=True)
class Offer:
    """What a source's draft tokens promise, each array by their number n.

    alive: the probability that n are all accepted. tokens: to expect of a round with n.
    seconds: of drafting n.
    """

    alive: Numbers
    tokens: Numbers
    seconds: Numbers


class AdaptiveLength:
    """Drafts as much as yields most tokens per second. Implements `Policy`.

    If draft tokens are accepted with probability p, a round with n of them adds 1 + p + ... + p^n
    tokens (Leviathan et al., arXiv 2211.17192, section 3.1). Of all n the one is taken with the
    greatest

        tokens(n) - rate * seconds(n),

    where `rate`, the price of a second, is the best rate of tokens that the text allows. n may be
    0. A pass has one of a few sizes, and is padded to it. To change the size costs time: as long as
    that is more than a longer pass costs, all rounds keep to one size, the home size.

    sources: where the drafter may take draft tokens from, first to last. costs: of passes,
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
        self._drafts = MODEL in sources
        # Plans by the match and the last size, until costs and acceptance are looked at again.
        self._plans: dict[tuple[Match | None, int], Plan] = {}
        self._bids: dict[Match | None, Bid] = {}
        self._is_settled = self._has_learnt = False
        self._num_rounds = 0
        # How often there is a match, by how sure it is, and none: averages over recent rounds.
        self._mix: dict[Match | None, float] = {None: 1.0}
        self._unread = 0
        """Tokens that the draft model has yet to be fed."""
        self._probing = False
        self._size = self._home = 0
        """Tokens of the last pass, and of those that most rounds have."""
        self._rate = 0.0
        # By the two sizes: seconds that a pass over one draft token takes longer than a plain one.
        self._verifying: dict[tuple[int, int], float] = {}
        self._look_up_costs(0)

    def plan(self, source: str, confidence: float | None = None) -> Plan:
        """The plan for the next round. confidence: that of a match; None for the draft model."""
        match = None if confidence is None else (source, confidence)
        if not self._is_settled:
            self._settle()
        if (match, self._size) not in self._plans:
            self._plans[match, self._size] = self._make_plan(match)
        plan = self._plans[match, self._size]
        if match is None and plan.length == 0 and self._may_probe():
            return Plan(1, "probe")
        return plan

    def bid(self, ask: Ask) -> Bid | None:
        """What draft tokens promise; None where lengths must follow nothing but this sequence.

        None too where the plan leaves the round to the draft model.
        """
        if not self._costs.is_live:
            return None
        match = None if ask.confidence is None else (ask.source, ask.confidence)
        if match is not None and self._drafts and self.plan(*match).reason == "outbid":
            return None
        if match not in self._bids:
            may_probe = match is None and (self._acceptance.is_new(MODEL) or self._may_probe())
            alive = self._alive(match)
            self._bids[match] = Bid(alive, match is None, may_probe, self._min_confidence)
        return self._bids[match]

    def pass_size(self, num_tokens: int) -> int:
        """The size that costs least, with the change to it and from it to the home size."""
        if num_tokens > SIZES[-1]:
            return num_tokens
        prices = self._prices()
        larger = (size for size in self._sizes if size > num_tokens)
        return min((num_tokens, *larger), key=lambda size: prices[size - 1])

    def update(self, stats: RoundStats) -> None:
        """Learn acceptance from a round, and plan anew from time to time."""
        if stats.reason == "prefill":
            self._unread = stats.cached_tokens + stats.pass_tokens
            self._look_up_costs(self._unread)
            self._is_settled = False
            return
        self._account(stats)
        if stats.draft_failed:
            self._drafts = self._is_settled = False
            self._bids.clear()
        if stats.pass_tokens not in self._main.static:
            self._size = stats.pass_tokens
        match = None if stats.declined is None else stats.declined[:2]
        if stats.match_confidence is not None:
            match = stats.source, stats.match_confidence
        for kind in self._mix | {match: 0.0}:
            share = self._mix.get(kind, 0.0)
            self._mix[kind] = share + ((kind == match) - share) / HORIZON
        self._acceptance.learn(stats)
        self._num_rounds += 1
        # Rounds of plain decoding teach nothing.
        self._has_learnt |= stats.num_drafted > 0 or match is not None
        if self._num_rounds % KEEP_PLANS == 0:
            has_grown = stats.cached_tokens - self._cached > SAME_CONTEXT
            if has_grown:
                self._look_up_costs(stats.cached_tokens)
            if has_grown or self._has_learnt:
                self._is_settled = self._has_learnt = False
                self._bids.clear()

    def _look_up_costs(self, num_cached: int) -> None:
        curve = self._costs.curve
        self._cached = num_cached
        self._main = curve.main
        self._sizes = sorted({*SIZES, *(size for size in curve.main.static if size <= SIZES[-1])})
        self._is_size = np.isin(LENGTHS + 1, self._sizes)
        self._seconds = curve.main.by_size(1, len(LENGTHS), num_cached)
        self._draft = curve.draft
        self._start, self._step, self._again = curve.drafting(num_cached)
        self._verifying.clear()

    def _alive(self, match: Match | None) -> Numbers:
        """The probability that n tokens are all accepted; without a match the draft model's."""
        alive: Numbers = self._acceptance.rate(*(match or (MODEL, None))) ** LENGTHS
        return alive

    def _offers(self, match: Match | None) -> list[Offer]:
        """What a match that is so sure promises, and the draft model, where there are any."""
        offers = []
        if self._drafts:
            alive = self._alive(None)
            seconds = self._start + LENGTHS * self._step + alive * self._again
            offers.append(Offer(alive, np.cumsum(alive), np.where(LENGTHS > 0, seconds, 0.0)))
        if match is not None:
            alive = self._alive(match)
            offers.append(Offer(alive, np.cumsum(alive), np.zeros(len(LENGTHS))))
        return offers

    def _make_plan(self, match: Match | None) -> Plan:
        """The plan of the source that is asked, whose offer is the last one."""
        prices, offers = padded(self._prices(), self._is_size), self._offers(match)
        *others, gains = [o.tokens - self._rate * (o.seconds + prices) for o in offers]
        own, best = offers[-1], int(gains.argmax())
        if any(other.max() > gains[best] for other in others):
            return Plan(0, "outbid")
        if best == 0:
            return Plan(0, "loses")
        expected = tuple(own.alive[1:].tolist())
        if match is not None:
            return Plan(best, "pays", expected=expected)
        ends = floors(own.alive, self._rate * (LENGTHS * self._step + prices))
        calibrated = self._acceptance.calibrated
        return Plan(len(ends), "pays", self._min_confidence, expected, ends, calibrated)

    def _prices(self) -> Numbers:
        """Seconds of a pass over n + 1 tokens now, with the changes of size that it entails."""
        prices: Numbers = self._seconds + self._main.changes(LENGTHS + 1, self._size, self._home)
        return prices

    def _settle(self) -> None:
        """Choose the home size, and the rate of tokens that is the price of a second."""
        rate = self._rate or 1.0 / self._seconds[0]
        rates = {}
        offers = {match: self._offers(match) for match in self._mix}
        for size in self._sizes:
            tokens, seconds = 0.0, float(self._seconds[size - 1])
            for match, share in self._mix.items():
                rounds = [(o.tokens[n], o.seconds[n]) for o in offers[match] for n in range(size)]
                best = max(rounds, key=lambda r: r[0] - rate * r[1], default=(1.0, 0.0))
                tokens += share * float(best[0])
                seconds += share * float(best[1])
            rates[size] = tokens / seconds
        fastest = max(rates, key=rates.__getitem__)
        home = self._home or fastest
        if rates[fastest] > rates[home] * (
            1.0 + self._main.change / self._seconds[home - 1] / HORIZON
        ):
            home = fastest
        self._home, self._rate = home, rates[home]
        self._plans.clear()
        self._is_settled = True

    def _may_probe(self) -> bool:
        saved = self._common.credit * float(self._seconds[0])
        return self._probing or saved >= self._probe_seconds()

    def _probe_seconds(self) -> float:
        """What it takes to draft and verify one draft token, beyond a plain pass."""
        if self._draft is None:
            return float("inf")
        sizes = self._size, self._home
        if sizes not in self._verifying:
            plain, one, *_ = padded(self._prices(), self._is_size)
            self._verifying[sizes] = float(one - plain)
        drafting = self._start + self._draft.at(self._unread, self._cached)
        return drafting + self._verifying[sizes]

    def _account(self, stats: RoundStats) -> None:
        """Save time for probes while nothing is drafted, and charge what they lose."""
        if stats.reason == "probe":
            lost = PROBE_FACTOR * self._probe_seconds() / float(self._seconds[0])
            self._common.credit -= lost - stats.num_accepted
            self._probing = stats.num_accepted > 0
        elif stats.num_drafted == 0:
            # A text that is to come out the same again has nothing to do with who shares passes.
            sharing = stats.num_sequences if self._costs.is_live else 1
            self._common.credit += SPENT_ON_PROBES / sharing
        drafted = stats.source == MODEL and stats.num_drafted > 0
        self._unread = 1 if drafted else self._unread + stats.num_generated


def floors(alive: Numbers, costs: Numbers) -> tuple[float, ...]:
    """How probable n draft tokens have to be for one more to pay, from n = 1 on, up to the end.

    alive: [lengths], the probability that n draft tokens are all accepted. costs: [lengths], the
    tokens that a round with n of them has to be worth. One more may pay only together with those
    that fill up a larger size.
    """
    lengths, tokens = np.arange(len(alive)), np.cumsum(alive)
    gains = (tokens - tokens[:, None]) / np.maximum(alive, TINY)[:, None]
    needed = (costs - costs[:, None]) / np.maximum(gains, TINY)
    needed = np.where(lengths[:, None] < lengths, needed, 1.0).min(axis=1)
    end = int((needed[1:] >= 1.0).argmax()) + 1
    return tuple(needed[1 : end + 1].tolist())


def padded(prices: Numbers, is_size: NDArray[np.bool_]) -> Numbers:
    """What passes of ascending sizes cost where each may be padded to a larger one of some."""
    sizes = np.where(is_size, prices, np.inf)
    least: Numbers = np.minimum(prices, np.minimum.accumulate(sizes[::-1])[::-1])
    return least
