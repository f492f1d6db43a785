"""One verification budget for many sequences: who drafts how far in the next step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ov_specdec.costs import SIZES, CostCurve, Costs
from ov_specdec.speculation.draft_length import Bid, Plan

TINY = 1e-9
"""Instead of probabilities of 0, by which nothing can be divided."""

MOST = SIZES[-1]
"""Places in a draft, at most."""

Numbers = NDArray[np.floating]


@dataclass(frozen=True)
class Load:
    """What the next pass of the main model holds in any case.

    num_sequences: that it extends. num_tokens: without the candidates that are bid for. num_cached:
    tokens in the KV caches of all of them.
    """

    num_sequences: int
    num_tokens: int
    num_cached: int


def share(bids: Sequence[Bid], load: Load, costs: Costs) -> list[Plan]:
    """Plans that yield most tokens per second, of all sequences together.

    Candidates of all sequences are ordered by the probability that they and those before them are
    accepted; of the best k, tokens and seconds are known, and the k with the greatest ratio is
    taken. What is known of a candidate before it is drawn ranks it, nothing else. While a draft
    model drafts, its confidence in the candidates so far may end a draft earlier, or let it go on:
    the floors hold what one more has to be worth at this price.

    Sources: Leviathan et al., section 3.1 (arXiv 2211.17192), for one sequence; goodput, Liu et al.
    (SmartSpec, arXiv 2406.14066).
    """
    curve = costs.curve
    ranked = sorted(_candidates(bids), key=lambda candidate: -candidate.alive)
    tokens = load.num_sequences + np.cumsum([0.0, *(c.alive for c in ranked)])
    steps = _draft_steps(curve, len(bids), load.num_cached)
    last = load.num_tokens + len(ranked)
    passes = curve.main.by_size(load.num_tokens, last, load.num_cached)
    start = 0.0 if curve.draft is None else curve.draft.start
    seconds = passes + _drafting(ranked, steps, start)
    rates = tokens / seconds
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
    passes = [curve.draft.at(n + 1, num_cached) for n in range(num_sequences + 1)]
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
