"""`Drafter`: the interface between the engine and a source of draft tokens."""

from collections.abc import Generator, Sequence, Set
from typing import NamedTuple, Protocol, TypeVar

from ov_specdec.planning.plan import NO_PLAN, Offer, Offers, Plan
from ov_specdec.runner.cached_sequence import CachedSequence, Passes
from ov_specdec.sampling.verification import Draft

T = TypeVar("T")
Steps = Generator[Offers | CachedSequence, Plan | None, T]
"""A coroutine that waits for passes and plans.

It yields a sequence to have its tokens fed, or offers to be sent a plan. Many sequences
can thus wait for one pass, and be planned together.
"""


class Proposal(NamedTuple):
    """A draft.

    confidences: the source's probability of each draft token, if it is known.
    pass_tokens: tokens fed to a draft model. has_failed: a draft model gave logits that are no
    distribution, and is not used any more. plan, offers: how it came about, set by the round.
    """

    draft: Draft
    confidences: tuple[float, ...] = ()
    pass_tokens: int = 0
    has_failed: bool = False
    plan: Plan = NO_PLAN
    offers: Offers = ()

    def until(self, ends: Set[int]) -> "Proposal":
        """The proposal up to and including its first token that ends a text.

        The length then depends on no dropped token, so drawn draft tokens keep their distribution.
        """
        for length, token in enumerate(self.draft.tokens, start=1):
            if token in ends:
                return self.first(length)
        return self

    def first(self, length: int) -> "Proposal":
        """The proposal up to so many draft tokens."""
        tokens, probs = self.draft
        if length >= len(tokens):
            return self
        draft = Draft(tokens[:length], probs and probs[:length])
        return self._replace(draft=draft, confidences=self.confidences[:length])


class Drafter(Protocol):
    """Proposes draft tokens for one sequence."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Its sources of draft tokens."""

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """The KV caches of its models for this sequence."""

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """What it can draft after `tokens`, at most one offer for each source: see `Offer`.

        tokens: the sequence so far, which begins with those of the last call.
        """

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """The draft tokens of the last offers that the plan takes, as many as it allows."""
