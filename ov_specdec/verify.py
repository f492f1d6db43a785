"""Which candidates stand: functions on the main model's logits or distributions alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ov_specdec.dice import Dice
from ov_specdec.distribution import Distribution, residual
from ov_specdec.session import Logits


@dataclass(frozen=True)
class Draft:
    """Candidates, and how they came about.

    probs: the distribution that each was drawn from; None if none was drawn. confidences: the
    probability that the source gives each, where the plan asked for it. source: "model" or
    "prompt-lookup". planned, why: the length that the policy chose, and its reason.
    """

    tokens: list[int]
    probs: list[Distribution] | None = None
    confidences: tuple[float, ...] = ()
    source: str = ""
    planned: int = 0
    why: str = ""


@dataclass(frozen=True)
class Verdict:
    """The first `num_accepted` candidates stand, and `next_token` follows them.

    next_token: the main model's own choice: the correction of the first candidate that does not
    stand, or the bonus token where all of them do.
    """

    num_accepted: int
    next_token: int


def greedy(row: Logits) -> int:
    """The most likely token of one row of logits [vocab]; the lowest id of those that tie."""
    return int(row.argmax())


def confidence(row: Logits, candidate: int, drawn_from: Distribution | None) -> float:
    """The probability that a draft model gives its candidate, as drawn or by its row [vocab]."""
    if drawn_from is not None:
        return drawn_from.prob(candidate)
    weights = np.exp(row - row.max())
    return float(weights[candidate] / weights.sum())


def verify_greedy(logits: Logits, candidates: Sequence[int]) -> Verdict:
    """Accept candidates for as long as each is what greedy decoding would have chosen.

    logits: [len(candidates) + 1, vocab]; row i scores the token in the place of candidate i, and
    the last row the one after all of them. Source: Leviathan et al., section 2 (arXiv 2211.17192),
    in the limit of temperature 0.
    """
    choices = logits.argmax(axis=-1).tolist()
    num_accepted = 0
    while num_accepted < len(candidates) and candidates[num_accepted] == choices[num_accepted]:
        num_accepted += 1
    return Verdict(num_accepted, choices[num_accepted])


def verify_sampled(
    main: Callable[[int], Distribution],
    draft: Sequence[Distribution],
    candidates: Sequence[int],
    dice: Dice,
) -> Verdict:
    """Accept candidates so that the tokens that stand follow the main model's distribution.

    main: gives the main model's distribution for the place of candidate i, or, at
    len(candidates), for the place after all of them; called once each, in order, and not beyond
    the first rejection. draft: the distribution that each candidate was drawn from (`certain`
    where it was not drawn). Source: Leviathan et al., algorithm 1 (arXiv 2211.17192); Chen et al.,
    algorithm 2 (arXiv 2302.01318).
    """
    for index, candidate in enumerate(candidates):
        main_probs, draft_probs = main(index), draft[index]
        if not dice.accept(acceptance(main_probs.prob(candidate), draft_probs.prob(candidate))):
            return Verdict(index, dice.draw(residual(main_probs, draft_probs)))
    return Verdict(len(candidates), dice.draw(main(len(candidates))))


def acceptance(main_prob: float, draft_prob: float) -> float:
    """How probable it is that a candidate stands: min(1, main_prob / draft_prob)."""
    # A candidate that was drawn has a draft_prob above 0.
    return 1.0 if main_prob >= draft_prob else main_prob / draft_prob
