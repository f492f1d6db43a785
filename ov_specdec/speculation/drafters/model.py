"""A smaller model of the same family as drafter."""

from collections.abc import Sequence

import numpy as np

from ov_specdec.cache.session import Session, catch_up
from ov_specdec.logits import Logits
from ov_specdec.sampling.distribution import Distribution
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.speculation.draft_length import Planner
from ov_specdec.speculation.drafters.base import Proposal
from ov_specdec.speculation.verification import Draft

SOURCE = "model"


class ModelDrafter:
    """Drafts with a draft model, one pass per candidate. Implements `Drafter`.

    sampler: how a candidate is chosen from the draft model's logits.
    Source: Leviathan et al. (arXiv 2211.17192), Chen et al. (arXiv 2302.01318).
    """

    sources: tuple[str, ...] = (SOURCE,)

    def __init__(self, session: Session, sampler: Sampler) -> None:
        self._session = session
        self._sampler = sampler

    def propose(self, tokens: Sequence[int], planner: Planner) -> Proposal:
        """Candidates up to where the plan or the draft model's own context ends."""
        plan = planner(SOURCE)
        sequence, probs, confidences = list(tokens), [], []
        # Each pass feeds one more token, after which the cache must still have room.
        end = min(len(tokens) + plan.length, self._session.max_length + 1)
        while len(sequence) < end:
            # After a round in which all were accepted, the first pass also feeds the last of them.
            row = catch_up(self._session, sequence)[0]
            candidate, drawn_from = self._sampler.sample(sequence, row)
            sequence.append(candidate)
            if drawn_from is not None:
                probs.append(drawn_from)
            if plan.wants_confidence:
                confidences.append(confidence(row, candidate, drawn_from))
                if plan.ends_after(confidences):
                    break
        draft = Draft(sequence[len(tokens) :], probs or None)
        return Proposal(draft, SOURCE, plan, tuple(confidences))

    def rollback(self, length: int) -> None:
        """Roll the session back to what its cache shares with the sequence."""
        self._session.rollback(min(length, self._session.length))

    def reset(self) -> None:
        """Empty the session's cache."""
        self._session.reset()


def confidence(row: Logits, candidate: int, drawn_from: Distribution | None) -> float:
    """The probability that a draft model gives its candidate, as drawn or by its row [vocab]."""
    if drawn_from is not None:
        return drawn_from.prob(candidate)
    weights = np.exp(row - row.max())
    return float(weights[candidate] / weights.sum())
