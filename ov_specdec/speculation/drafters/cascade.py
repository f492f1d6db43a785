"""Two drafters as one: the second is asked where the first has no idea."""

from collections.abc import Sequence
from threading import Event

from ov_specdec.speculation.draft_length import Planner
from ov_specdec.speculation.drafters.base import Drafter, Proposal


class Cascade:
    """Prompt lookup first, say, and a draft model where nothing matches. Implements `Drafter`.

    A plan that gives the first one no candidates leaves the round to the second: so the policy
    decides between them.
    """

    def __init__(self, first: Drafter, second: Drafter) -> None:
        self._first = first
        self._second = second

    @property
    def sources(self) -> tuple[str, ...]:
        """Those of both."""
        return (*self._first.sources, *self._second.sources)

    def begin(self, tokens: Sequence[int], cancelled: Event) -> None:
        """A new sequence begins, for both."""
        self._first.begin(tokens, cancelled)
        self._second.begin(tokens, cancelled)

    def propose(self, tokens: Sequence[int], planner: Planner) -> Proposal:
        """The first one's candidates if there are any, else those of the second."""
        proposal = self._first.propose(tokens, planner)
        return proposal if proposal.draft.tokens else self._second.propose(tokens, planner)
