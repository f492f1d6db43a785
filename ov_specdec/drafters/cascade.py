"""Two drafters as one: in each round, the one whose draft is worth more drafts."""

from collections.abc import Sequence

from ov_specdec.drafters.base import Drafter, Proposal
from ov_specdec.planning.draft_length import Offer, Plan
from ov_specdec.runner.base import HiddenStatesReader
from ov_specdec.runner.cached_sequence import CachedSequence, Passes


class Cascade:
    """Suffix matches, say, and a draft model. Implements `Drafter`.

    The policy takes the offer that is worth more. Where draft lengths are constant, it takes the
    first.
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

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """The offers of both."""
        return [*self._first.offers(tokens), *self._second.offers(tokens)]

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """The draft tokens of the drafter whose offer the plan takes."""
        is_first = plan.offer.source in self._first.sources
        return (self._first if is_first else self._second).propose(tokens, plan)


def readers(drafter: Drafter | None) -> tuple[HiddenStatesReader, ...]:
    """Readers of the main model's hidden states: the drafter itself, or its parts."""
    if isinstance(drafter, Cascade):
        return drafter.readers
    return (drafter,) if isinstance(drafter, HiddenStatesReader) else ()
