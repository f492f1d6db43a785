"""One verification budget for many sequences: who drafts how far in the next step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ov_specdec.costs import GRID, SIZES, CostCurve, Costs
from ov_specdec.speculation.adaptive import HORIZON, TINY, Numbers, padded
from ov_specdec.speculation.draft_length import Bid, Plan

MOST = SIZES[-1]
"""Places in a draft, at most."""


@dataclass(frozen=True)
class Load:
    """What the next pass of the main model holds in any case.

    num_sequences: that it extends. num_tokens: without the candidates that are bid for. num_cached:
    tokens in the KV caches of all of them.
    """

    num_sequences: int
    num_tokens: int
    num_cached: int


class Budget:
    """Plans the drafts of all sequences of a step together.

    Candidates of all sequences are ordered by the probability that they and those before them are
    accepted; of the best k, tokens and seconds are known, and the k with the greatest ratio is
    taken. What is known of a candidate before it is drawn ranks it, nothing else. While a draft
    model drafts, its confidence in the candidates so far may end a draft earlier, or let it go on:
    the floors hold what one more has to be worth at this price. As for a single sequence, passes
    are padded to a few sizes, and keep to one of them, the home size, as long as that is about as
    good: see `AdaptiveLength`.

    Sources: Leviathan et al., section 3.1 (arXiv 2211.17192), for one sequence; goodput, Liu et al.
    (SmartSpec, arXiv 2406.14066).
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._size = self._home = 0
        """Tokens of the last pass, and of those that most steps have."""

    def ran(self, num_tokens: int) -> None:
        """The main model has run a pass over so many tokens."""
        self._size = num_tokens

    def pass_size(self, num_tokens: int, load: Load) -> int:
        """The size that a pass over so many tokens is to be padded to: the one that costs least."""
        sizes = [num_tokens, *(size for size in self._sizes() if size > num_tokens)]
        seconds = self._seconds(num_tokens, max(sizes), load)
        return min(sizes, key=lambda size: float(seconds[size - num_tokens]))

    def share(self, bids: Sequence[Bid], load: Load) -> list[Plan]:
        """Plans that yield most tokens per second, of all sequences together."""
        curve = self.costs.curve
        ranked = sorted(_candidates(bids), key=lambda candidate: -candidate.alive)
        tokens = load.num_sequences + np.cumsum([0.0, *(c.alive for c in ranked)])
        steps = _draft_steps(curve, len(bids), load.num_cached)
        start = 0.0 if curve.draft is None else curve.draft.start
        drafting = _drafting(ranked, steps, start)
        self._settle(tokens, drafting, load)
        passes = self._padded(load, len(ranked))
        rates = tokens / (passes + drafting)
        best = int(rates.argmax())

        # What one token more costs, on average over one more of each sequence.
        ahead = min(best + len(bids), len(ranked))
        slope = (passes[ahead] - passes[best]) / max(ahead - best, 1)
        sharing = Counter(c.place for c in ranked[:best] if c.takes_pass)
        prices = [rates[best] * (slope + steps[sharing[place]]) for place in range(MOST)]
        lengths = Counter(c.sequence for c in ranked[:best])
        plans = [_plan(bid, lengths[i], np.array(prices)) for i, bid in enumerate(bids)]

        idle = [i for i, bid in enumerate(bids) if plans[i].length == 0 and bid.may_probe]
        if idle:  # one in a step, where it is likeliest to succeed
            likeliest = max(idle, key=lambda i: bids[i].alive[1])
            plans[likeliest] = replace(plans[likeliest], length=1, reason="probe")
        return plans

    def _settle(self, tokens: Numbers, drafting: Numbers, load: Load) -> None:
        """Choose the home size: the one with the best rate while it is kept to."""
        curve, rates = self.costs.curve, {}
        for size in GRID:
            most = min(size - load.num_tokens, len(tokens) - 1)
            if most >= 0:
                passing = curve.main.at(size, load.num_cached, load.num_sequences)
                seconds = passing + drafting[: most + 1]
                rates[size] = float((tokens[: most + 1] / seconds).max())
        best = max(rates, key=rates.__getitem__, default=0)
        home = self._home if self._home in rates else best
        gain = curve.main.change / curve.main.at(max(home, 1), load.num_cached) / HORIZON
        if rates and rates[best] > rates[home] * (1.0 + gain):
            home = best
        self._home = home

    def _sizes(self) -> tuple[int, ...]:
        return *GRID, self._size

    def _seconds(self, first: int, last: int, load: Load) -> Numbers:
        """Seconds of passes over `first` to `last` tokens, with the changes of size they entail."""
        main, sizes = self.costs.curve.main, np.arange(first, last + 1)
        changes = (sizes != self._size).astype(float) + (sizes != self._home)
        extra = main.change * changes + main.per_sequence * (load.num_sequences - 1)
        seconds: Numbers = main.by_size(first, last, load.num_cached) + extra
        return seconds

    def _padded(self, load: Load, most: int) -> Numbers:
        """Seconds of passes over none to `most` tokens more, where each may be padded."""
        sizes = [size for size in self._sizes() if size >= load.num_tokens]
        seconds = self._seconds(load.num_tokens, max(load.num_tokens + most, *sizes), load)
        ends = np.isin(np.arange(len(seconds)) + load.num_tokens, sizes)
        return padded(seconds, ends)[: most + 1]


@dataclass(frozen=True)
class Candidate:
    """A candidate that might be drafted. place: in its draft, from 0. alive: see `Bid`."""

    sequence: int
    place: int
    alive: float
    takes_pass: bool


def _candidates(bids: Sequence[Bid]) -> Iterator[Candidate]:
    for sequence, bid in enumerate(bids):
        for place, alive in enumerate(bid.alive[1:].tolist()):
            yield Candidate(sequence, place, alive, bid.takes_passes)


def _draft_steps(curve: CostCurve, num_sequences: int, num_cached: int) -> list[float]:
    """Seconds that one sequence more adds to a pass of the draft model, by those in it."""
    if curve.draft is None:
        return [0.0] * (num_sequences + 1)
    passes = [curve.draft.at(n, num_cached, n) for n in range(1, num_sequences + 2)]
    return [passes[0], *(more - less for less, more in pairwise(passes))]


def _drafting(ranked: Sequence[Candidate], steps: Sequence[float], start: float) -> Numbers:
    """Seconds of drafting the first k candidates, by k: those in one place share a pass."""
    sharing, seconds = Counter[int](), [0.0]
    for candidate in ranked:
        if candidate.takes_pass:
            seconds.append(steps[sharing[candidate.place]] + (0.0 if sharing else start))
            sharing[candidate.place] += 1
        else:
            seconds.append(0.0)
    return np.cumsum(seconds)


def _plan(bid: Bid, length: int, prices: Numbers) -> Plan:
    """prices: the tokens that a candidate in each place has to be worth."""
    plan = Plan(length, "pays" if length else "loses", bid.min_confidence, bid.expected)
    if not length or bid.acceptance is None:
        return plan
    # After n candidates: how probable they have to be for one more to pay.
    n = np.arange(1, len(bid.alive) - 1)
    next_one = bid.alive[n + 1] / np.maximum(bid.alive[n], TINY)
    floors = np.minimum(prices[n] / np.maximum(next_one, TINY), 1.0)
    most = len(bid.alive) - 1
    return replace(plan, length=most, floors=(*floors.tolist(), 1.0), acceptance=bid.acceptance)
