"""A smaller model of the same family as drafter."""

from collections.abc import Sequence

from ov_specdec.session import Session, catch_up
from ov_specdec.verify import greedy


class ModelDrafter:
    """Drafts greedily with a draft model, one pass per candidate. Implements `Drafter`.

    Source: Leviathan et al. (arXiv 2211.17192), Chen et al. (arXiv 2302.01318).
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def propose(self, tokens: Sequence[int], num_draft_tokens: int) -> list[int]:
        """Candidates up to the asked number, or to the end of the draft model's own context."""
        draft = list(tokens)
        # Each pass feeds one more token, after which the cache must still have room.
        end = min(len(tokens) + num_draft_tokens, self._session.max_length + 1)
        while len(draft) < end:
            # After a round in which all stood, the first pass also feeds the last candidate.
            draft.append(greedy(catch_up(self._session, draft)[-1]))
        return draft[len(tokens) :]

    def rollback(self, length: int) -> None:
        """Roll the session back to what stands of its cache."""
        self._session.rollback(min(length, self._session.length))

    def reset(self) -> None:
        """Empty the session's cache."""
        self._session.reset()
