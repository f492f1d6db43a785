"""A smaller model of the same family as drafter."""

from collections.abc import Sequence

from ov_specdec.policy import Planner, Source
from ov_specdec.rules import Rule
from ov_specdec.session import Session, catch_up
from ov_specdec.verify import Draft, confidence


class ModelDrafter:
    """Drafts with a draft model, one pass per candidate. Implements `Drafter`.

    rule: how a candidate is chosen from the draft model's logits.
    Source: Leviathan et al. (arXiv 2211.17192), Chen et al. (arXiv 2302.01318).
    """

    sources: tuple[Source, ...] = ("model",)

    def __init__(self, session: Session, rule: Rule) -> None:
        self._session = session
        self._rule = rule

    def propose(self, tokens: Sequence[int], planner: Planner) -> Draft:
        """Candidates up to where the plan or the draft model's own context ends."""
        plan = planner("model")
        text, probs, confidences = list(tokens), [], []
        # Each pass feeds one more token, after which the cache must still have room.
        end = min(len(tokens) + plan.length, self._session.max_length + 1)
        while len(text) < end:
            # After a round in which all stood, the first pass also feeds the last candidate.
            row = catch_up(self._session, text)[0]
            candidate, drawn_from = self._rule.draft(text, row)
            text.append(candidate)
            if drawn_from is not None:
                probs.append(drawn_from)
            if plan.wants_confidence:
                confidences.append(confidence(row, candidate, drawn_from))
                if plan.ends_after(confidences):
                    break
        candidates = text[len(tokens) :]
        return Draft(candidates, probs or None, tuple(confidences), "model", plan.length, plan.why)

    def rollback(self, length: int) -> None:
        """Roll the session back to what stands of its cache."""
        self._session.rollback(min(length, self._session.length))

    def reset(self) -> None:
        """Empty the session's cache."""
        self._session.reset()
