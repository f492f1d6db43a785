"""`Drafter`: the interface between the engine and a source of draft tokens."""

from collections.abc import Generator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from ov_specdec.planning.draft_length import NO_PLAN, Plan, PlanRequest
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.verification import Draft

T = TypeVar("T")
Steps = Generator[PlanRequest | CachedSequence, Plan | None, T]
"""A coroutine that waits for passes and plans.

It yields a sequence to have its tokens fed, or a `PlanRequest` to be sent a plan. Many sequences
can thus wait for one pass, and be planned together.
"""


@dataclass(frozen=True)
class Declined:
    """A match that was not proposed, kept to learn whether it would have been accepted."""

    source: str
    match_confidence: float
    draft_token: int

    def outcome(self, token: int) -> tuple[str, float, bool]:
        """Source, confidence, and whether the draft token equals the main model's token.

        The two are equal with the probability that verification would have accepted it.
        """
        return self.source, self.match_confidence, token == self.draft_token


class Proposal(NamedTuple):
    """A draft and its origin, for the statistics and the draft-length policy.

    source: name of the source. plan: how many draft tokens were planned, and why. confidences: the
    source's probability of each draft token, if the plan asked for it. match_confidence: the
    source's confidence before it drafted, such as from the length of a match; None if unknown.
    pass_tokens: tokens fed to a draft model. declined: a match that the plan rejected. has_failed:
    a draft model gave logits that are no distribution, and is not used any more.
    """

    draft: Draft
    source: str = ""
    plan: Plan = NO_PLAN
    confidences: tuple[float, ...] = ()
    match_confidence: float | None = None
    pass_tokens: int = 0
    declined: Declined | None = None
    has_failed: bool = False

    def until(self, ends: Set[int]) -> "Proposal":
        """The proposal up to and including its first token that ends a text.

        The length then depends on no dropped token, so drawn draft tokens keep their distribution.
        """
        tokens, probs = self.draft.tokens, self.draft.probs
        for length, token in enumerate(tokens[:-1], start=1):
            if token in ends:
                draft = Draft(tokens[:length], probs and probs[:length])
                return self._replace(draft=draft, confidences=self.confidences[:length])
        return self


class Drafter(Protocol):
    """Proposes draft tokens for one sequence."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Its sources of draft tokens; the last one drafts if the others have none."""
        ...

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """The KV caches of its models for this sequence."""
        ...

    def propose(self, tokens: Sequence[int]) -> Steps[Proposal]:
        """Draft tokens to follow `tokens`, as many as the plan allows; possibly none.

        tokens: the sequence so far, which begins with those of the last call.
        """
        ...
