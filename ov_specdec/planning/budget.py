"""One verification budget for many sequences: who drafts how far in the next step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ov_specdec.planning.adaptive import HORIZON, Numbers, padded
from ov_specdec.planning.costs import GRID, SIZES, CostCurve, Costs
from ov_specdec.planning.draft_length import Bid, Plan

MOST = SIZES[-1]
"""Places in a draft, at most."""


@dataclass(frozen=True)
class Load:
    """What the next pass of the main model holds in any case.

    num_sequences: that it extends. num_answered: those of them that get a token by it. num_tokens:
    of these, without the draft tokens that are bid for. num_prefill: tokens of prompts beside them.
    num_cached: tokens in the KV caches of all of them.
    """

    num_sequences: int
    num_answered: int
    num_tokens: int
    num_prefill: int
    num_cached: int


class Budget:
    """Plans the drafts of all sequences of a step together.

    Draft tokens of all sequences are ordered by the probability that they and those before them are
    accepted. Of the best k, in drafts of at most n, tokens and seconds are known, and the pair of k
    and n with the greatest ratio is taken. Where the pass also reads prompts, most of its seconds
    are spent whatever is drafted: the ratio without them is then the price of a second, and the
    pair with most tokens beyond that price is taken. What is known of a draft token before it is
    drawn ranks it, nothing else. As for a single sequence, passes are padded to a few sizes, and
    keep to one of them, the home size, as long as that is about as good: see `AdaptiveLength`.

    The confidence in draft tokens that were drawn, which ends drafts of a single sequence, is left
    alone: with eight sequences of the embedded pair, plans that looked at it gave 0.93 of the
    tokens per second of those that did not.

    Sources: Leviathan et al., section 3.1 (arXiv 2211.17192), for one sequence; goodput, Liu et al.
    (SmartSpec, arXiv 2406.14066).
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._size = self._home = 0
        """Tokens of the last pass, and of those that most steps have."""
        self._planned: tuple[Sequence[Bid], Load] | None = None
        """What the last plans follow from."""
        self._plans: list[Plan] = []

    def ran(self, num_tokens: int) -> None:
        """The main model has run a pass over so many tokens, for which it was prepared anew."""
        self._size = num_tokens

    def pass_size(self, num_tokens: int, load: Load) -> int:
        """The size that a pass over so many tokens is to be padded to: the one that costs least."""
        sizes = [num_tokens, *(size for size in self._sizes() if size > num_tokens)]
        seconds = self._seconds(num_tokens, max(sizes), load)
        return min(sizes, key=lambda size: float(seconds[size - num_tokens]))

    def share(self, bids: Sequence[Bid], load: Load) -> list[Plan]:
        """Plans that yield most tokens per second, of all sequences together.

        They stay as they are while sequences bid about what they bid when they were planned.
        """
        if not self._is_planned(bids, load):
            self._plans = self._share(bids, load)
            self._planned = bids, load
        return self._plans

    def _is_planned(self, bids: Sequence[Bid], load: Load) -> bool:
        """Whether the last plans serve again; not those with a probe, which is one step's."""
        if self._planned is None or any(plan.reason == "probe" for plan in self._plans):
            return False
        before, last_load = self._planned
        return (
            len(bids) == len(before)
            and all(bid.is_like(last) for bid, last in zip(bids, before, strict=True))
            and replace(load, num_cached=last_load.num_cached) == last_load
        )

    def _share(self, bids: Sequence[Bid], load: Load) -> list[Plan]:
        ranked = Candidates.of(bids)
        choices = ranked.choices(load, _draft_steps(self.costs.curve, len(bids), load.num_cached))
        self._settle(choices, load)
        passes = self._padded(load, len(ranked.alive))
        gains = choices.tokens / (passes[choices.number] + choices.drafting)
        if load.num_prefill:
            passes = self._beside_prompts(load, len(ranked.alive))
            gains = choices.tokens - gains.max() * (passes[choices.number] + choices.drafting)
        longest, best = np.unravel_index(int(gains.argmax()), gains.shape)
        taken = ranked.sequence[:best][ranked.place[:best] < SIZES[longest]]
        lengths = np.bincount(taken, minlength=len(bids)).tolist()
        plans = [
            Plan(length, "pays" if length else "loses", bid.min_confidence, bid.expected)
            for bid, length in zip(bids, lengths, strict=True)
        ]
        idle = [i for i, bid in enumerate(bids) if plans[i].length == 0 and bid.may_probe]
        if idle:  # one in a step, where it is likeliest to succeed
            likeliest = max(idle, key=lambda i: bids[i].alive[1])
            plans[likeliest] = replace(plans[likeliest], length=1, reason="probe")
        return plans

    def _settle(self, choices: "Choices", load: Load) -> None:
        """Choose the home size: the one with the best rate while it is kept to."""
        curve, rates = self.costs.curve, {}
        for size in GRID:
            if size >= load.num_tokens:
                passing = curve.main.at(size, load.num_cached, load.num_sequences)
                fits = choices.number <= size - load.num_tokens
                all_rates = choices.tokens / (passing + choices.drafting)
                rates[size] = float(all_rates[fits].max())
        best = max(rates, key=rates.__getitem__, default=0)
        home = self._home if self._home in rates else best
        gain = curve.main.change / curve.main.at(max(home, 1), load.num_cached) / HORIZON
        if rates and rates[best] > rates[home] * (1.0 + gain):
            home = best
        self._home = home

    def _sizes(self) -> tuple[int, ...]:
        return *GRID, *self.costs.curve.main.static, self._size

    def _seconds(self, first: int, last: int, load: Load) -> Numbers:
        """Seconds of passes over `first` to `last` tokens, with the changes of size they entail."""
        main, sizes = self.costs.curve.main, np.arange(first, last + 1)
        seconds: Numbers = main.by_size(first, last, load.num_cached)
        seconds += main.changes(sizes, self._size, self._home)
        return seconds + main.per_sequence * (load.num_sequences - 1)

    def _padded(self, load: Load, most: int) -> Numbers:
        """Seconds of passes over none to `most` tokens more, where each may be padded."""
        sizes = [size for size in self._sizes() if size >= load.num_tokens]
        seconds = self._seconds(load.num_tokens, max([load.num_tokens + most, *sizes]), load)
        ends = np.zeros(len(seconds), bool)
        ends[np.array(sizes, int) - load.num_tokens] = True
        return padded(seconds, ends)[: most + 1]

    def _beside_prompts(self, load: Load, most: int) -> Numbers:
        """The same of passes that read prompts too, which fill them up to their size."""
        first = load.num_tokens + load.num_prefill
        return self.costs.curve.main.by_size(first, first + most, load.num_cached)


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

    def choices(self, load: Load, steps: Numbers) -> "Choices":
        """What may be drafted. steps: see `_draft_steps`; those in one place share a pass."""
        in_place = (self.place[:, None] == np.arange(MOST)) & self.takes_pass[:, None]
        sharing = np.cumsum(in_place, axis=0)[np.arange(len(self.place)), self.place] - 1
        seconds = steps[np.minimum(self.place, 1), np.maximum(sharing, 0)]
        fits = self.place < np.array(SIZES)[:, None]

        def total(values: NDArray[Any]) -> NDArray[Any]:
            """Of the first k that fit, by k."""
            sums = np.zeros((len(fits), len(values) + 1), values.dtype)
            np.cumsum(fits * values, axis=1, out=sums[:, 1:])
            return sums

        return Choices(
            total(np.ones(len(self.place), int)),
            load.num_answered + total(self.alive),
            total(np.where(self.takes_pass, seconds, 0.0)),
        )


@dataclass(frozen=True)
class Choices:
    """The likeliest draft tokens, in drafts of at most so many: arrays [SIZES, draft tokens].

    number: of draft tokens. tokens: to expect of the step. drafting: its seconds.
    """

    number: NDArray[np.integer]
    tokens: Numbers
    drafting: Numbers


def _draft_steps(curve: CostCurve, num_sequences: int, num_cached: int) -> Numbers:
    """Seconds that one sequence more adds to a pass of the draft model, [2, those in it before].

    First those of a draft's first pass: most sequences then feed two tokens, the last draft token
    and the main model's own.
    """
    if curve.draft is None:
        return np.zeros((2, num_sequences))
    by_size = curve.draft.by_size(0, 2 * num_sequences, num_cached)
    by_sequences = np.stack([by_size[2::2] + curve.draft.start, by_size[1 : num_sequences + 1]])
    by_sequences += curve.draft.per_sequence * np.arange(num_sequences)
    return np.diff(by_sequences, axis=1, prepend=0.0)
