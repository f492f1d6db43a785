"""One verification budget for many sequences: who drafts how far in the next step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ov_specdec.costs import GRID, SIZES, CostCurve, Costs
from ov_specdec.speculation.adaptive import HORIZON, Numbers, floors, padded
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
        self._planned: tuple[Sequence[Bid], Load, int] | None = None
        """What the last plans follow from."""
        self._plans: list[Plan] = []

    def ran(self, num_tokens: int) -> None:
        """The main model has run a pass over so many tokens."""
        if num_tokens not in self.costs.curve.main.fixed:
            self._size = num_tokens

    def pass_size(self, num_tokens: int, load: Load) -> int:
        """The size that a pass over so many tokens is to be padded to: the one that costs least."""
        sizes = [num_tokens, *(size for size in self._sizes() if size > num_tokens)]
        seconds = self._seconds(num_tokens, max(sizes), load)
        return min(sizes, key=lambda size: float(seconds[size - num_tokens]))

    def share(self, bids: Sequence[Bid], load: Load) -> list[Plan]:
        """Plans that yield most tokens per second, of all sequences together.

        They stay as they are while all sequences bid what they bid in the step before.
        """
        if not self._is_planned(bids, load):
            self._plans = self._share(bids, load)
            self._planned = bids, load, self._size
        return self._plans

    def _is_planned(self, bids: Sequence[Bid], load: Load) -> bool:
        """Whether the last plans serve again; not those with a probe, which is one step's."""
        if self._planned is None or any(plan.reason == "probe" for plan in self._plans):
            return False
        before, last_load, last_size = self._planned
        return (
            len(bids) == len(before)
            and all(bid is last for bid, last in zip(bids, before, strict=True))
            and load.num_sequences == last_load.num_sequences
            and load.num_tokens == last_load.num_tokens
            and self._size == last_size
        )

    def _share(self, bids: Sequence[Bid], load: Load) -> list[Plan]:
        curve = self.costs.curve
        ranked = Candidates.of(bids)
        tokens = load.num_sequences + np.cumsum([0.0, *ranked.alive])
        steps = _draft_steps(curve, len(bids), load.num_cached)
        start = 0.0 if curve.draft is None else curve.draft.start
        drafting = ranked.drafting(steps, start)
        self._settle(tokens, drafting, load)
        passes = self._padded(load, len(ranked.alive))
        rates = tokens / (passes + drafting)
        best = int(rates.argmax())

        # What another length of one sequence costs, while all others keep to theirs.
        sharing = np.bincount(ranked.place[:best][ranked.takes_pass[:best]], minlength=MOST)
        own_drafting = np.cumsum([0.0, *steps[sharing]])
        lengths = np.bincount(ranked.sequence[:best], minlength=len(bids)).tolist()
        plans = [
            _plan(bid, length, rates[best] * (passes[best - length :][:n] + own_drafting[:n]))
            for bid, length in zip(bids, lengths, strict=True)
            for n in [len(bid.alive)]
        ]

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
        return *GRID, *self.costs.curve.main.fixed, self._size

    def _seconds(self, first: int, last: int, load: Load) -> Numbers:
        """Seconds of passes over `first` to `last` tokens, with the changes of size they entail."""
        main, sizes = self.costs.curve.main, np.arange(first, last + 1)
        seconds: Numbers = main.by_size(first, last, load.num_cached)
        seconds += main.changes(sizes, self._size, self._home)
        return seconds + main.per_sequence * (load.num_sequences - 1)

    def _padded(self, load: Load, most: int) -> Numbers:
        """Seconds of passes over none to `most` tokens more, where each may be padded."""
        sizes = [size for size in self._sizes() if size >= load.num_tokens]
        seconds = self._seconds(load.num_tokens, max(load.num_tokens + most, *sizes), load)
        ends = np.isin(np.arange(len(seconds)) + load.num_tokens, sizes)
        return padded(seconds, ends)[: most + 1]


@dataclass(frozen=True)
class Candidates:
    """What might be drafted, the likeliest to be accepted first: an array of each property.

    place: in its draft, from 0. alive: see `Bid`. takes_pass: whether the draft model drafts it.
    """

    sequence: NDArray[np.integer]
    place: NDArray[np.integer]
    alive: Numbers
    takes_pass: NDArray[np.bool_]

    @classmethod
    def of(cls, bids: Sequence[Bid]) -> "Candidates":
        """Those of all bids."""
        numbers = [len(bid.alive) - 1 for bid in bids]
        alive = np.concatenate([bid.alive[1:] for bid in bids])
        order = np.argsort(-alive, kind="stable")
        return cls(
            np.repeat(np.arange(len(bids)), numbers)[order],
            np.concatenate([np.arange(n) for n in numbers])[order],
            alive[order],
            np.repeat([bid.takes_passes for bid in bids], numbers)[order],
        )

    def drafting(self, steps: Numbers, start: float) -> Numbers:
        """Seconds of drafting the first k, by k: those in one place share a pass.

        steps: see `_draft_steps`. start: what the first pass takes longer.
        """
        in_place = (self.place[:, None] == np.arange(MOST)) & self.takes_pass[:, None]
        sharing = np.cumsum(in_place, axis=0)[np.arange(len(self.place)), self.place] - 1
        seconds = np.where(self.takes_pass, steps[np.maximum(sharing, 0)], 0.0)
        seconds += start * (self.takes_pass & (np.cumsum(self.takes_pass) == 1))
        return np.cumsum([0.0, *seconds])


def _draft_steps(curve: CostCurve, num_sequences: int, num_cached: int) -> Numbers:
    """Seconds that one sequence more adds to a pass of the draft model, by those in it."""
    if curve.draft is None:
        return np.zeros(num_sequences + 1)
    by_size = curve.draft.by_size(1, num_sequences + 1, num_cached)
    return np.diff(by_size + curve.draft.per_sequence * np.arange(num_sequences + 1), prepend=0.0)


def _plan(bid: Bid, length: int, costs: Numbers) -> Plan:
    """costs: by the number of candidates, the tokens that they have to be worth."""
    if not length or bid.acceptance is None:
        reason = "pays" if length else "loses"
        return Plan(length, reason, bid.min_confidence, bid.expected)
    ends = floors(bid.alive, costs)
    return Plan(len(ends), "pays", bid.min_confidence, bid.expected, ends, bid.acceptance)
