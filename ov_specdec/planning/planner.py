"""Plans the draft lengths of a step for most tokens per second."""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ov_specdec.planning.costs import GRID, Costs
from ov_specdec.planning.draft_length import MOST, WAIT, Bid, Plan
from ov_specdec.planning.ranking import Numbers, Ranking
from ov_specdec.stats import StepStats

HORIZON = 24
"""Steps in which a new home size has to amortize the change, and over which kinds of steps are
counted. If a change costs a plain pass, 64 has 0.99 of the speed while learning texts with 95 %
acceptance, and 16 has 0.98 after a draft model gets worse. Without kinds, alternating matches and
draft models have 0.95.
"""

SPENT_ON_PROBES = 0.01
"""Fraction of the time for probes of drafts that did not pay: below noise."""

PROBE_FACTOR = 4.0
"""Factor on the curve's time of probes, whose passes have rare sizes: measured 3 to 7."""

SAME_ACCEPTANCE = 0.04
"""Difference of acceptance within which plans are reused: tens of draft tokens give no better
estimate, and planning takes as long as a token of the embedded draft model."""

SAME_CONTEXT = 64
"""Growth in cached tokens after which costs are looked up again: 1 % of a pass."""

MOST_KINDS = 64
"""Maximum kinds of steps: one sequence has some twenty, many may have a new one in each step."""

QUICK = 1e-3
"""Seconds of a draft model's pass below which its confidence ends no drafts, because reading it
takes 0.05 ms a draft token. With passes of 0.3 ms, speed over that of the best constant length,
greedy and at temperature 0.8: 0.93 and 0.86 with this rule, 0.97 and 0.95 without.
"""

TINY = 1e-9
"""Replaces zero denominators."""


@dataclass(frozen=True)
class Load:
    """The main model's next pass without draft tokens; by default over a single sequence.

    num_sequences: in the pass. num_answered: those that get a token from it. num_tokens: of these,
    without draft tokens of bids. num_prefill: prefill tokens. num_cached: tokens in the KV caches
    of all sequences.
    """

    num_sequences: int = 1
    num_answered: int = 1
    num_tokens: int = 1
    num_prefill: int = 0
    num_cached: int = 0


OUTBID = "outbid"

Sources = tuple[tuple[str, float | None], ...]
"""The requested sources, with the confidence in a match."""


@dataclass
class Kind:
    """Steps in which sequences ask for the same sources.

    rounds: decayed count of steps. plans: the last ones, reused while bids are alike and nothing
    but the price of a second changes. expected: their tokens and seconds, by home size. trying:
    extra seconds of a pass with one draft token. wished: the size of its passes if changes of size
    were free.
    """

    rounds: float = 0.0
    bids: Sequence[Bid] = ()
    follows: Hashable = None
    plans: list[Plan] = field(default_factory=list)
    expected: Numbers | float = 0.0
    trying: float = 0.0
    wished: int = 0


class SizeCache:
    """A cache of padded sizes, by number of tokens, while their inputs stay the same."""

    def __init__(self) -> None:
        self._follows: object = None
        self._sizes: dict[int, int] = {}

    def get(self, num_tokens: int, follows: object, choose: Callable[[], int]) -> int:
        """The cached size for `num_tokens`, or the result of `choose`."""
        if self._follows != follows:
            self._follows, self._sizes = follows, {}
        if num_tokens not in self._sizes:
            self._sizes[num_tokens] = choose()
        return self._sizes[num_tokens]


class Planner:
    """Plans the drafts of all sequences of a step together.

    Draft tokens of all sequences are ranked by the probability that they and those before them are
    accepted. For the first k of them, in drafts of at most n, tokens and seconds of the whole step
    are estimated, and the pair of k and n maximizes

        tokens - rate * seconds,

    where `rate`, the price of a second, is the best rate of tokens for these texts, over recent
    steps of as many sequences with and without matches.

    A pass is padded to one of a few sizes. A change of size costs time; while that exceeds the cost
    of a longer pass, all steps have the same size, the home size.

    Sources: Leviathan et al., section 3.1 (arXiv 2211.17192), for one sequence; goodput, Liu et al.
    (SmartSpec, arXiv 2406.14066), for many.

    While nothing is drafted, 1 % of the time goes to probes, rounds with one draft token.

    costs: the cost curves, looked up for each plan.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._size, self._home = 0, 1
        """The size of the last pass, and the home size."""
        self.wished = 0
        """The size of the last planned pass if changes of size were free."""
        self._rate = 0.0
        self._credit = 0.0
        """Saved time for probes, in plain passes."""
        self._kinds: dict[Sources, Kind] = {}
        self._alike: Hashable = None
        """The common context of the counted kinds."""
        self._pass_sizes, self._draft_sizes = SizeCache(), SizeCache()

    def plan(self, bids: Sequence[Bid], load: Load) -> list[Plan]:
        """The plans for the bids; without bids, a step without drafts.

        Outbid sequences ask for their draft model next: until then the others get `WAIT`.
        """
        curve = self._costs.curve
        alike = curve.sweeps, load.num_sequences, load.num_answered, load.num_tokens
        if alike != self._alike or len(self._kinds) > MOST_KINDS:
            self._alike, self._kinds, self._rate = alike, {}, 0.0
        kind = self._kinds.setdefault(tuple((bid.source, bid.match) for bid in bids), Kind())
        for each in self._kinds.values():
            each.rounds *= 1.0 - 1.0 / HORIZON
        kind.rounds += 1.0
        context = load.num_cached // load.num_sequences // SAME_CONTEXT
        follows = context, load.num_prefill, self._size, self._home, curve
        if kind.follows != follows or not all(map(are_alike, bids, kind.bids)):
            # The better source is chosen once there is a price of a second.
            kind.bids, kind.follows = bids, follows if self._rate else None
            kind.plans = self._outbid(bids, load) or self._share(kind, bids, load)
        if any(plan.reason == OUTBID for plan in kind.plans):
            kind.rounds = 0.0  # the step continues as another kind
            return kind.plans
        self.wished = kind.wished
        return self._probe(kind, bids, load)

    def pass_size(self, num_tokens: int, load: Load) -> int:
        """The cheapest size to which to pad a pass over `num_tokens`."""
        context = load.num_cached // load.num_sequences // SAME_CONTEXT
        follows = context, load.num_sequences, self._size, self._home, self._costs.curve

        def cheapest() -> int:
            return num_tokens + int(self._next(num_tokens, num_tokens + MOST, load).argmin())

        return self._pass_sizes.get(num_tokens, follows, cheapest)

    def draft_size(self, num_tokens: int, static: Collection[int]) -> int:
        """The same for the draft model. static: sizes without a cost of change."""
        if not static or (draft := self._costs.curve.draft) is None:
            return num_tokens

        def cheapest() -> int:
            last = num_tokens + MOST
            seconds = draft.by_size(num_tokens, last, 0) + draft.changes(num_tokens, last, 0, 0)
            return num_tokens + int(seconds.argmin())

        return self._draft_sizes.get(num_tokens, draft, cheapest)

    def learn(self, step: StepStats, static: Collection[int] = ()) -> None:
        """Learn from a step. static: sizes without a cost of change."""
        if step.main.num_tokens not in static:
            self._size = step.main.num_tokens
        if not any(done.num_prefill for done in (step.main, *step.drafts)):
            self._costs.learn(step)

    def _outbid(self, bids: Sequence[Bid], load: Load) -> list[Plan]:
        """Empty plans for matches that a draft model outbids; an empty list if there are none."""
        if all(bid.rival is None for bid in bids):
            return []
        passes = padded(self._next(load.num_tokens, MOST, load))
        rate = self._rate or load.num_answered / float(passes[0])

        def gain(bid: Bid) -> float:
            ranking = Ranking.of([bid], self._costs.curve, load.num_cached)
            seconds = passes[ranking.number] + ranking.seconds
            return float((ranking.accepted - rate * seconds).max())

        plans = [
            Plan(0, OUTBID) if bid.rival is not None and gain(bid.rival) >= gain(bid) else WAIT
            for bid in bids
        ]
        return plans if any(plan is not WAIT for plan in plans) else []

    def _share(self, kind: Kind, bids: Sequence[Bid], load: Load) -> list[Plan]:
        """The plans of a step without outbid sequences."""
        ranking = Ranking.of(bids, self._costs.curve, load.num_cached)
        tokens = load.num_answered + ranking.accepted
        self._settle(kind, ranking, tokens, load)
        # The price comes from steps without prefill, whose time does not depend on drafts; with
        # prefill, only the added time of draft tokens counts.
        most = MOST * load.num_answered
        passes = padded(self._next(load.num_tokens + load.num_prefill, most, load))
        kind.trying = float(passes[1] - passes[0])
        gains = tokens - self._rate * (passes[ranking.number] + ranking.seconds)
        lengths = ranking.lengths(int(gains.argmax()), len(bids))
        plans = [
            Plan(length, "pays" if length else "loses", bid.min_confidence, bid.expected)
            for bid, length in zip(bids, lengths, strict=True)
        ]
        if load.num_sequences == 1 and plans and plans[0].length:
            return [self._ended(plans[0], bids[0], passes, load)]
        return plans

    def _ended(self, plan: Plan, bid: Bid, passes: Numbers, load: Load) -> Plan:
        """The plan of a single sequence, which also ends a draft at low confidence.

        With eight sequences of the embedded pair, this rule gave 0.93 of the tokens per second; a
        single one gains 1 to 3 %.
        """
        step, _ = self._costs.curve.drafting(load.num_cached)
        if bid.calibrated is None or step < QUICK:
            return plan
        lengths = np.arange(MOST + 1)
        ends = floors(bid.acceptance**lengths, self._rate * (lengths * step + passes))
        return replace(plan, length=len(ends), floors=ends, acceptance=bid.calibrated)

    def _settle(self, kind: Kind, ranking: Ranking, tokens: Numbers, load: Load) -> None:
        """Choose the home size and the price of a second, a rate of tokens.

        Both are over all recent steps, each with its best drafts at that size.
        """
        main, first, most = self._costs.curve.main, load.num_tokens, MOST * load.num_answered
        within = [size for size in (*GRID, *main.static) if first <= size <= first + most]
        sizes = np.array(sorted({*within} or {first}))
        passes = self._seconds(first, most, load)
        at_home = passes[sizes - first]
        elsewhere = padded(passes + main.changes(first, first + most, 0, 0))
        fits = np.arange(most + 1) <= sizes[:, None] - first
        main_seconds = np.where(fits, np.minimum(at_home[:, None], elsewhere), elsewhere)
        seconds = main_seconds.take(ranking.number.ravel(), axis=1) + ranking.seconds.ravel()
        others = np.zeros((2, len(sizes)))
        for other in self._kinds.values():
            if other is not kind:
                others += other.rounds / kind.rounds * other.expected
        rates = (others[0][:, None] + tokens.ravel()) / (others[1][:, None] + seconds)
        best = np.arange(len(sizes)), rates.argmax(axis=1)
        rates = rates[best]
        fastest = int(rates.argmax())
        home = min(int(np.searchsorted(sizes, self._home)), len(sizes) - 1)
        if rates[fastest] > rates[home] * (1.0 + main.change / at_home[home] / HORIZON):
            home = fastest
        self._home, self._rate = int(sizes[home]), float(rates[home])
        kind.expected = np.stack([tokens.ravel()[best[1]], seconds[best]])
        alike = main.dynamic(first, first + most, load.num_cached, load.num_sequences)
        wish = (tokens / (alike[ranking.number] + ranking.seconds)).argmax()
        kind.wished = first + int(ranking.number.flat[wish])

    def _probe(self, kind: Kind, bids: Sequence[Bid], load: Load) -> list[Plan]:
        """The plans, with a probe of one draft token if it is due.

        A successful probe is followed by another one.
        """
        plans = kind.plans
        num_idle = sum(plan.length == 0 for plan in plans)
        self._credit += SPENT_ON_PROBES * num_idle / load.num_sequences
        idle = [i for i, bid in enumerate(bids) if bid.takes_passes and plans[i].length == 0]
        if not idle:
            return plans
        place = max(idle, key=lambda i: (bids[i].is_hopeful, bids[i].acceptance))
        if not bids[place].is_hopeful:
            cost = self._probe_passes(bids[place], kind.trying, load)
            if self._credit < cost:
                return plans
            self._credit -= PROBE_FACTOR * cost
        probe = replace(plans[place], length=1, reason="probe")
        return [*plans[:place], probe, *plans[place + 1 :]]

    def _probe_passes(self, bid: Bid, trying: float, load: Load) -> float:
        """The cost of a probe, in plain passes."""
        main, draft = self._costs.curve.main, self._costs.curve.draft
        cached = load.num_cached // load.num_sequences
        drafting = draft.at(bid.num_unread, cached) if draft else 0.0
        return (drafting + trying) / main.at(1, load.num_cached)

    def _seconds(self, first: int, most: int, load: Load) -> Numbers:
        """Seconds of passes over `first` to `first + most` tokens, without changes of size."""
        last, main = first + most, self._costs.curve.main
        return main.by_size(first, last, load.num_cached, load.num_sequences)

    def _next(self, first: int, most: int, load: Load) -> Numbers:
        """The same for the next pass, with its changes of size."""
        changes = self._costs.curve.main.changes(first, first + most, self._size, self._home)
        return self._seconds(first, most, load) + changes


def padded(seconds: Numbers) -> Numbers:
    """Seconds of passes of ascending sizes, each of which may be padded to a larger one."""
    least: Numbers = np.minimum.accumulate(seconds[::-1])[::-1]
    return least


def are_alike(bid: Bid | None, other: Bid | None) -> bool:
    """Whether two bids of a kind can share plans."""
    if bid is None or other is None:
        return bid is other
    return (
        abs(bid.acceptance - other.acceptance) <= SAME_ACCEPTANCE
        and are_alike(bid.rival, other.rival)
        and bid.min_confidence == other.min_confidence
        and bid.calibrated == other.calibrated
    )


def floors(alive: Numbers, costs: Numbers) -> tuple[float, ...]:
    """The minimum probability of n draft tokens at which one more pays, from n = 1.

    alive: [lengths], the probability that n draft tokens are all accepted. costs: [lengths], of a
    round with n draft tokens, in tokens. One more may pay only together with further ones that fill
    a larger size.
    """
    lengths, tokens = np.arange(len(alive)), np.cumsum(alive)
    gains = (tokens - tokens[:, None]) / np.maximum(alive, TINY)[:, None]
    needed = (costs - costs[:, None]) / np.maximum(gains, TINY)
    needed = np.where(lengths[:, None] < lengths, needed, 1.0).min(axis=1)
    end = int((needed[1:] >= 1.0).argmax()) + 1
    return tuple(needed[1 : end + 1].tolist())
