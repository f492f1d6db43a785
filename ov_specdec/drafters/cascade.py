"""Two drafters as one: the second is asked where the first has no idea."""

from collections.abc import Sequence

from ov_specdec.drafters.base import Drafter
from ov_specdec.policy import Planner, Source
from ov_specdec.verify import Draft


class Cascade:
    """Prompt lookup first, say, and a draft model where nothing matches. Implements `Drafter`.

    A plan that gives the first one no candidates leaves the round to the second: so the policy
    decides between them.
    """

    def __init__(self, first: Drafter, second: Drafter) -> None:
        self._first = first
        self._second = second

    @property
    def sources(self) -> tuple[Source, ...]:
        """Those of both."""
        return (*self._first.sources, *self._second.sources)

    def propose(self, tokens: Sequence[int], planner: Planner) -> Draft:
        """The first one's candidates if there are any, else those of the second."""
        draft = self._first.propose(tokens, planner)
        return draft if draft.tokens else self._second.propose(tokens, planner)

    def rollback(self, length: int) -> None:
        """Roll both back."""
        self._first.rollback(length)
        self._second.rollback(length)

    def reset(self) -> None:
        """A new text begins, for both."""
        self._first.reset()
        self._second.reset()
