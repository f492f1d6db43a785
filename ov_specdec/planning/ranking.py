"""Ranks draft tokens of several sequences by expected acceptance, with their costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ov_specdec.planning.costs import CostCurve, PassCurve
from ov_specdec.planning.plan import MAX_PLANNED_LENGTH, Estimate

Numbers = NDArray[np.floating]

DRAFT_LIMITS = (1, 2, 3, 4, 6, 8, 12, MAX_PLANNED_LENGTH)
"""Draft lengths to which drafts of several sequences are limited, the last by none."""


@dataclass(frozen=True)
class Ranking:
    """Draft tokens of all sequences, ranked by the probability that they are accepted.

    A token of a sequence that has been twice as fast as the others counts half: requests that come
    together end with the slowest (proportional fairness, Mo and Walrand 2000). The rank is known
    before a token is drawn. sequence, index: of each, and its index in the draft. The rest are
    arrays [limits, tokens + 1] for the first k tokens in drafts of limited length. number: of
    tokens. value: expected accepted ones of these, weighted as above. seconds: to draft them, and
    for the main model to read what is cached before each.
    """

    sequence: NDArray[np.integer]
    index: NDArray[np.integer]
    limits: tuple[int, ...]
    number: NDArray[np.integer]
    value: Numbers
    seconds: Numbers

    @classmethod
    def of(cls, estimates: Sequence[Estimate], curve: CostCurve) -> "Ranking":
        """The ranking of all."""
        known = [(each.rate, each.throughput, each.num_cached) for each in estimates]
        rate, throughput, num_cached = np.array(known).reshape(-1, 3).T[..., None]  # may be none
        acceptance: Numbers = rate.repeat(MAX_PLANNED_LENGTH, axis=1).cumprod(axis=1)
        # To the power of 2, batches of 4 to 16 ended at 0.91 to 1.03 of the speed, and 4 to 16
        # clients had 0.90 to 0.97 of the throughput.
        values = acceptance * (throughput.sum() / max(len(estimates), 1) / throughput)
        order = (-values.ravel()).argsort(kind="stable")
        # A last pass over one sequence costs about as much as the first over all: without limits
        # 32 sequences had 0.90 of the speed when all passes of the main model cost the same.
        limits = DRAFT_LIMITS if len(estimates) > 1 else DRAFT_LIMITS[-1:]
        sequence, index = np.divmod(order, MAX_PLANNED_LENGTH)
        fits = index < np.array(limits)[:, None]
        ones = np.ones(acceptance.shape)
        own = curve.main.per_read * num_cached * ones  # seconds of each token
        shared: Numbers | float = 0.0
        has_draft = not all(each.offer.is_match for each in estimates)
        if curve.draft is not None and any(each.offer.takes_one_pass for each in estimates):
            # One pass over all: a draft token adds the one before it or a mask token, and itself to
            # the next pass if it is accepted.
            drafts = np.array([[each.offer.takes_one_pass] for each in estimates])
            fed = drafts * (1.0 + acceptance)
            shared = curve.draft.varying(_sums(order, fits, fed)[0])
            own += curve.draft.per_read * num_cached * fed
        elif curve.draft is not None and has_draft:
            drafts = np.array([[not each.offer.is_match] for each in estimates])
            own += _pass_by_pass(curve, curve.draft, drafts, acceptance, values)
            own += curve.draft.per_read * num_cached * drafts
        joining = np.array([_joining(each, curve.draft) for each in estimates])[:, None]
        own += joining * acceptance
        own[:, :1] += joining  # the main model's own token
        number, value, seconds = _sums(order, fits, ones, values, own)
        return cls(sequence, index, limits, number.astype(int), value, shared + seconds)

    def lengths(self, choice: int, num_sequences: int) -> list[int]:
        """Draft length of each sequence for a choice, an index into the flat arrays."""
        limit, first = divmod(choice, len(self.sequence) + 1)
        taken = self.sequence[:first][self.index[:first] < self.limits[limit]]
        lengths: list[int] = np.bincount(taken, minlength=num_sequences).tolist()
        return lengths


def _sums(order: NDArray[np.integer], fits: Numbers, *each: Numbers) -> Numbers:
    """Of the first k draft tokens, from k = 0, as far as they fit a limit."""
    ranked = fits * np.array(each).reshape(len(each), 1, -1)[..., order]
    result = np.zeros((*ranked.shape[:2], len(order) + 1))
    ranked.cumsum(axis=2, out=result[..., 1:])
    return result


def _joining(estimate: Estimate, draft: PassCurve | None) -> float:
    """Seconds of reading what the draft model's cache lacks, for each token that is to come."""
    num_unread = estimate.offer.num_unread
    if draft is None or num_unread <= 2:  # the last tokens of a fully accepted draft
        return 0.0
    return draft.reading(num_unread) / estimate.num_expected


def _pass_by_pass(
    curve: CostCurve,
    draft: PassCurve,
    drafts: NDArray[np.bool_],
    acceptance: Numbers,
    values: Numbers,
) -> Numbers:
    """Seconds that each draft token adds to a draft model's passes, where each takes one.

    Shape: [sequences, MAX_PLANNED_LENGTH]. Sequences share the passes: the base cost of one belongs
    to the token of most value. After a fully accepted draft the first pass also feeds its last
    token, so over several sequences it has another size than the passes before and after it.
    drafts: which sequences have draft tokens of the model.
    """
    if len(drafts) == 1:
        per_token, once, catching_up = curve.drafting
        seconds = per_token + catching_up * acceptance
        seconds[:, 0] += once
    else:
        rank = np.where(drafts, -values, 1.0).argsort(axis=0, kind="stable").argsort(axis=0)
        by_size = draft.by_size(len(drafts))[1:]
        added, catching_up = np.diff(by_size, prepend=0.0), by_size[1] - by_size[0]
        seconds = added[rank] + catching_up * acceptance
        seconds[:, :2] += draft.change * (rank[:, :2] == 0)
        seconds[:, 0] += draft.resumed * (rank[:, 0] == 0)
    seconds[:, 1:] -= catching_up * acceptance[:, :-1]
    return seconds * drafts
