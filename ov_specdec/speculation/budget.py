"""One verification budget for many sequences: who drafts how far in the next step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ov_specdec.costs import Costs
from ov_specdec.speculation.draft_length import Bid, Plan

TINY = 1e-9
"""Instead of probabilities of 0, by which nothing can be divided."""

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
    most = max(len(bid.alive) for bid in bids) - 1
    alive = np.zeros((len(bids), most))
    for row, bid in zip(alive, bids, strict=True):
        row[: len(bid.alive) - 1] = bid.alive[1:]
    order = np.argsort(-alive, axis=None, kind="stable")
    sequences, places = np.unravel_index(order, alive.shape)
    tokens = load.num_sequences + np.cumsum([0.0, *alive.ravel()[order]])

    curve = costs.curve
    # By the sequences that take part: a pass of the draft model, and what one more adds to it.
    steps = np.zeros(len(bids) + 1)
    if curve.draft is not None:
        steps[1:] = [curve.draft.at(n + 1, load.num_cached) for n in range(len(bids))]
    counts, more = np.zeros(most + 1, int), []
    for sequence, place in zip(sequences, places, strict=True):
        if bids[sequence].takes_passes:
            more.append(steps[counts[place] + 1] - steps[counts[place]])
            counts[place] += 1
        else:
            more.append(0.0)
    passes = curve.main.by_size(load.num_tokens, load.num_tokens + len(order), load.num_cached)
    seconds = passes + np.cumsum([0.0, *more])
    if curve.draft is not None and any(bid.takes_passes for bid in bids):
        seconds[1:] += curve.draft.start

    rates = tokens / seconds
    best = int(rates.argmax())
    lengths = np.bincount(sequences[:best], minlength=len(bids))
    counts[:] = 0
    for sequence, place in zip(sequences[:best], places[:best], strict=True):
        counts[place] += bids[sequence].takes_passes
    # What one token more costs, on average over one more of each sequence.
    ahead = min(best + len(bids), len(order))
    slope = (passes[ahead] - passes[best]) / max(ahead - best, 1)
    prices = rates[best] * (slope + np.diff(steps)[np.minimum(counts, len(bids) - 1)])
    plans = [_plan(bid, int(length), prices) for bid, length in zip(bids, lengths, strict=True)]
    idle = [i for i, bid in enumerate(bids) if plans[i].length == 0 and bid.may_probe]
    if idle:  # one in a step, where it is likeliest to succeed
        likeliest = max(idle, key=lambda i: bids[i].alive[1])
        plans[likeliest] = replace(plans[likeliest], length=1, reason="probe")
    return plans


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
