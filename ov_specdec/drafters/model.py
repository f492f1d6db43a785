"""A smaller model of the same family as drafter."""

from collections.abc import Sequence

from ov_specdec.rules import Rule
from ov_specdec.session import Session, catch_up
from ov_specdec.verify import Draft


class ModelDrafter:
    """Drafts with a draft model, one pass per candidate. Implements `Drafter`.

    rule: how a candidate is chosen from the draft model's logits.
    Source: Leviathan et al. (arXiv 2211.17192), Chen et al. (arXiv 2302.01318).
    """

    def __init__(self, session: Session, rule: Rule) -> None:
        self._session = session
        self._rule = rule

    def propose(self, tokens: Sequence[int], num_draft_tokens: int) -> Draft:
        """Candidates up to the asked number, or to the end of the draft model's own context."""
        text = list(tokens)
        probs = []
        # Each pass feeds one more token, after which the cache must still have room.
        end = min(len(tokens) + num_draft_tokens, self._session.max_length + 1)
        while len(text) < end:
            # After a round in which all stood, the first pass also feeds the last candidate.
            candidate, drawn_from = self._rule.draft(text, catch_up(self._session, text)[-1])
            text.append(candidate)
            if drawn_from is not None:
                probs.append(drawn_from)
        return Draft(text[len(tokens) :], probs or None)

    def rollback(self, length: int) -> None:
        """Roll the session back to what stands of its cache."""
        self._session.rollback(min(length, self._session.length))

    def reset(self) -> None:
        """Empty the session's cache."""
        self._session.reset()
