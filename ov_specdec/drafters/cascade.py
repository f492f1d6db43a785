"""Two drafters as one: the second is asked where the first has no idea."""

from collections.abc import Sequence

from ov_specdec.drafters.base import Drafter, Proposal, Steps
from ov_specdec.runner.base import HiddenStatesReader
from ov_specdec.runner.cached_sequence import CachedSequence


class Cascade:
    """Suffix matches first, say, and a draft model where nothing matches. Implements `Drafter`.

    A plan that gives the first one no draft tokens leaves the round to the second: so the policy
    decides between them.
    """

    def __init__(self, first: Drafter, second: Drafter) -> None:
        self._first = first
        self._second = second

    @property
    def readers(self) -> tuple[HiddenStatesReader, ...]:
        """Those of both that read hidden states."""
        return (*readers(self._first), *readers(self._second))

    @property
    def sources(self) -> tuple[str, ...]:
        """Those of both."""
        return (*self._first.sources, *self._second.sources)

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """Those of both."""
        return (*self._first.caches, *self._second.caches)

    def propose(self, tokens: Sequence[int]) -> Steps[Proposal]:
        """The first one's draft tokens if there are any, else those of the second."""
        proposal = yield from self._first.propose(tokens)
        if proposal.draft.tokens:
            return proposal
        other = yield from self._second.propose(tokens)
        return other._replace(declined=proposal.declined or other.declined)


def readers(drafter: Drafter | None) -> tuple[HiddenStatesReader, ...]:
    """Who reads the main model's hidden states: the drafter, or drafters of which it is made."""
    if isinstance(drafter, Cascade):
        return drafter.readers
    return (drafter,) if isinstance(drafter, HiddenStatesReader) else ()
