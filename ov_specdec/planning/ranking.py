"""Ranks draft tokens of several sequences by expected acceptance, with their costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ov_specdec.planning.costs import SIZES, CostCurve
from ov_specdec.planning.draft_length import MOST, Bid

Numbers = NDArray[np.floating]


@dataclass(frozen=True)
class Ranking:
    """Draft tokens of all sequences, ranked by their probability of acceptance.

    The rank is known before a token is drawn. sequence, place: of each, from 0. The rest are arrays
    [limits, tokens + 1] for the first k tokens in drafts of limited length. number: of tokens.
    accepted: expected number of accepted ones. seconds: to draft them.
    """

    sequence: NDArray[np.integer]
    place: NDArray[np.integer]
    limits: tuple[int, ...]
    number: NDArray[np.integer]
    accepted: Numbers
    seconds: Numbers

    @classmethod
    def of(cls, bids: Sequence[Bid], curve: CostCurve, num_cached: int) -> "Ranking":
        """The ranking of all bids. num_cached: tokens in the KV caches of their sequences."""
        rates = np.array([bid.acceptance for bid in bids], float)
        takes_passes = np.array([bid.takes_passes for bid in bids], bool)
        alive: Numbers = rates[:, None] ** np.arange(1, MOST + 1)
        seconds = _drafting(curve, num_cached, rates, takes_passes, alive)
        order = (-alive.ravel()).argsort(kind="stable")
        sequence, place = np.divmod(order, MOST)
        # A last pass over one sequence costs about as much as the first over all: without limits 32
        # sequences had 0.90 of the speed when all passes of the main model cost the same.
        limits = SIZES if len(bids) > 1 else SIZES[-1:]
        fits = place < np.array(limits)[:, None]
        values = np.stack([np.ones(alive.shape), alive, seconds]).reshape(3, 1, -1)[:, :, order]
        sums = np.zeros((3, len(limits), len(order) + 1))
        np.cumsum(fits * values, axis=2, out=sums[:, :, 1:])
        return cls(sequence, place, limits, sums[0].astype(int), sums[1], sums[2])

    def lengths(self, choice: int, num_sequences: int) -> list[int]:
        """Draft length of each sequence for a choice, an index into the flat arrays."""
        limit, first = divmod(choice, len(self.sequence) + 1)
        taken = self.sequence[:first][self.place[:first] < self.limits[limit]]
        lengths: list[int] = np.bincount(taken, minlength=num_sequences).tolist()
        return lengths


def _drafting(
    curve: CostCurve,
    num_cached: int,
    rates: Numbers,
    takes_passes: NDArray[np.bool_],
    alive: Numbers,
) -> Numbers:
    """Seconds that each draft token adds to the passes of the draft model, [sequences, places].

    Tokens at the same place share a pass, whose base cost belongs to the most likely sequence.
    After a fully accepted draft the first pass also feeds its last token.
    """
    seconds = np.zeros(alive.shape)
    if curve.draft is None or not takes_passes.any():
        return seconds
    rank = np.where(takes_passes, -rates, 1.0).argsort(kind="stable").argsort()
    by_size = curve.draft.by_size(0, max(len(rates), 2), num_cached)
    steps = by_size[1:] - by_size[:-1] + curve.draft.per_sequence
    steps[0], again = curve.drafting(num_cached)
    agains = np.where(rank == 0, again, by_size[2] - by_size[1])[:, None]
    seconds += steps[rank][:, None] + agains * alive
    seconds[:, 1:] -= agains * alive[:, :-1]
    seconds[~takes_passes] = 0.0
    return seconds
