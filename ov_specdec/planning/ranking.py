"""Ranks draft tokens of several sequences by expected acceptance, with their costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ov_specdec.planning.costs import SIZES, CostCurve, PassCurve
from ov_specdec.planning.draft_length import MAX_PLANNED_LENGTH, Estimate

Numbers = NDArray[np.floating]

NUMBERS = np.arange(MAX_PLANNED_LENGTH + 1)


@dataclass(frozen=True)
class Ranking:
    """Draft tokens of all sequences, ranked by the probability that they are accepted.

    A token of a sequence that has been twice as fast as the others counts half: requests that come
    together end with the slowest (proportional fairness, Kelly 1997). The rank is known before a
    token is drawn. sequence, index: of each, and its index in the draft. The rest are arrays
    [limits, tokens + 1] for the first k tokens in drafts of limited length. number: of tokens.
    accepted: expected number of accepted ones, as they count. seconds: to draft them.
    """

    sequence: NDArray[np.integer]
    index: NDArray[np.integer]
    limits: tuple[int, ...]
    number: NDArray[np.integer]
    accepted: Numbers
    seconds: Numbers

    @classmethod
    def of(cls, estimates: Sequence[Estimate], curve: CostCurve) -> "Ranking":
        """The ranking of all."""
        alive: Numbers = np.array([each.expected for each in estimates], float)
        alive = alive.reshape(-1, MAX_PLANNED_LENGTH)  # there may be none
        values = alive
        if len(estimates) > 1:
            paces = np.array([each.pace for each in estimates])
            values = alive * (paces.mean() / paces)[:, None]
        seconds = _drafting(curve, estimates, alive, values)
        is_parallel = np.array([each.num_passes == 1 for each in estimates], bool)
        fed = (1.0 + alive) * is_parallel[:, None]
        parallel = curve.draft if is_parallel.any() else None
        if len(estimates) < 2:  # a tenth of the time: a plan takes as long as a small draft's token
            sums = np.zeros((2, 1, alive.size + 1))
            alive.cumsum(out=sums[0, 0, 1:])
            seconds.cumsum(out=sums[1, 0, 1:])
            number = NUMBERS[: alive.size + 1]
            if parallel is not None:
                sums[1] = _one_pass(parallel, fed, number[:-1])
            return cls(0 * number[1:], number[:-1], SIZES[-1:], number[None], *sums)
        order = (-values.ravel()).argsort(kind="stable")
        sequence, index = np.divmod(order, MAX_PLANNED_LENGTH)
        # A last pass over one sequence costs about as much as the first over all: without limits 32
        # sequences had 0.90 of the speed when all passes of the main model cost the same.
        fits = index < np.array(SIZES)[:, None]
        each = np.stack([np.ones(alive.shape), values, seconds]).reshape(3, 1, -1)[:, :, order]
        sums = np.zeros((3, len(SIZES), len(order) + 1))
        np.cumsum(fits * each, axis=2, out=sums[:, :, 1:])
        if parallel is not None:
            sums[2] += _one_pass(parallel, fits * fed.ravel()[order], index)
        return cls(sequence, index, SIZES, sums[0].astype(int), sums[1], sums[2])

    def lengths(self, choice: int, num_sequences: int) -> list[int]:
        """Draft length of each sequence for a choice, an index into the flat arrays."""
        limit, first = divmod(choice, len(self.sequence) + 1)
        taken = self.sequence[:first][self.index[:first] < self.limits[limit]]
        lengths: list[int] = np.bincount(taken, minlength=num_sequences).tolist()
        return lengths


def _drafting(
    curve: CostCurve, estimates: Sequence[Estimate], alive: Numbers, values: Numbers
) -> Numbers:
    """Seconds that each draft token adds to the passes of the draft model.

    Shape: [sequences, MAX_PLANNED_LENGTH]. Tokens at the same index share a pass, whose base cost
    belongs to the one of most value. After a fully accepted draft the first pass also feeds its
    last token, so over several sequences it has another size than the passes before and after it.
    """
    seconds = np.zeros(alive.shape)
    if curve.draft is None or not any(each.num_passes > 1 for each in estimates):
        return seconds
    step, again = curve.drafting
    if len(estimates) == 1:
        seconds += step + again * alive
        seconds[:, 1:] -= again * alive[:, :-1]
        seconds[:, estimates[0].num_passes :] = 0.0
        return seconds
    num_passes = np.array([each.num_passes for each in estimates], int)
    ranked = np.where(num_passes[:, None] > 0, -values, 1.0)
    rank = ranked.argsort(axis=0, kind="stable").argsort(axis=0)
    by_size = curve.draft.by_size(0, len(alive))
    steps = by_size[1:] - by_size[:-1] + curve.draft.per_sequence
    steps[0] = step
    last = by_size[2] - by_size[1]
    seconds += steps[rank] + last * alive
    seconds[:, :2] += curve.draft.change * (rank[:, :2] == 0)
    seconds[:, 1:] -= last * alive[:, :-1]
    return seconds * (NUMBERS[:MAX_PLANNED_LENGTH] < num_passes[:, None])


def _one_pass(draft: PassCurve, fed: Numbers, index: NDArray[np.integer]) -> Numbers:
    """Seconds of the pass that drafts the first k tokens of all sequences, from k = 0.

    index: of each token in its draft. fed: tokens that each adds to such passes [limits, tokens]:
    the one before it, or a mask token, and, if it is accepted, itself to the next.
    """
    seconds = np.zeros((len(fed), len(index) + 1))
    begun = ((fed > 0) & (index == 0)).cumsum(axis=1)
    seconds[:, 1:] = draft.varying(fed.cumsum(axis=1))
    seconds[:, 1:] += draft.per_sequence * (begun - 1).clip(min=0)
    return seconds
