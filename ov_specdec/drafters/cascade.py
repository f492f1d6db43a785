"""Two drafters as one: the second drafts if the first has no draft tokens."""

from collections.abc import Sequence

from ov_specdec.drafters.base import Drafter, Proposal, Steps
from ov_specdec.runner.base import HiddenStatesReader
from ov_specdec.runner.cached_sequence import CachedSequence


class Cascade:
    """Suffix matches first, say, and a draft model where nothing matches. Implements `Drafter`.

    A plan of no draft tokens for the first leaves the round to the second: the policy thus chooses
    between them.
    """

    def __init__(self, first: Drafter, second: Drafter) -> None:
        self._first = first
        self._second = second

    @property
    def readers(self) -> tuple[HiddenStatesReader, ...]:
        """The readers of hidden states of both."""
        return (*readers(self._first), *readers(self._second))

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of both."""
        return (*self._first.sources, *self._second.sources)

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """The KV caches of both."""
        return (*self._first.caches, *self._second.caches)

    def propose(self, tokens: Sequence[int]) -> Steps[Proposal]:
        """The first drafter's draft tokens, or if there are none, the second's."""
        proposal = yield from self._first.propose(tokens)
        if proposal.draft.tokens:
            return proposal
        other = yield from self._second.propose(tokens)
        return other._replace(declined=proposal.declined or other.declined)


def readers(drafter: Drafter | None) -> tuple[HiddenStatesReader, ...]:
    """Readers of the main model's hidden states: the drafter itself, or its parts."""
    if isinstance(drafter, Cascade):
        return drafter.readers
    return (drafter,) if isinstance(drafter, HiddenStatesReader) else ()
