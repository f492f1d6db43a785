"""`Drafter`: what the engine needs of what proposes draft tokens."""

from collections.abc import Generator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from ov_specdec.planning.draft_length import NO_PLAN, Ask, Plan
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.verification import Draft

T = TypeVar("T")
Steps = Generator[Ask | CachedSequence, Plan | None, T]
"""A coroutine that waits for passes, and for plans.

It yields a sequence whose tokens are to be fed, or an `Ask`, to which it is sent the plan. So many
sequences can wait for one pass, and be planned together.
"""


@dataclass(frozen=True)
class Declined:
    """A draft token that was not proposed; that it would have been accepted may show."""

    source: str
    match_confidence: float
    draft_token: int

    def judged(self, token: int) -> tuple[str, float, bool]:
        """Source, confidence, and whether it is the token that came.

        It is with the probability that the main model gives it, with which it would have been
        accepted.
        """
        return self.source, self.match_confidence, token == self.draft_token


class Proposal(NamedTuple):
    """A draft, and how it came about, for the statistics and the draft-length policy.

    source: the name of where the draft tokens come from. plan: how many there were to be, and why.
    confidences: the probability that the source gives each draft token, where the plan asked for
    it. match_confidence: how sure the source was of all its draft tokens before it drafted any,
    where it can tell, as prompt lookup can by the length of its match. pass_tokens: tokens that a
    draft model was fed. declined: a match that the plan gave no place to. has_failed: a draft model
    gave logits that are no distribution, and is not asked any more.
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
        """The same up to its first token that ends a text, with that one.

        Where a draft ends then depends on no token that is left out, so that drawn draft tokens
        keep their law.
        """
        tokens, probs = self.draft.tokens, self.draft.probs
        for length, token in enumerate(tokens[:-1], start=1):
            if token in ends:
                draft = Draft(tokens[:length], probs and probs[:length])
                return self._replace(draft=draft, confidences=self.confidences[:length])
        return self


class Drafter(Protocol):
    """Proposes draft tokens for the tokens that come next in one sequence."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Where it takes draft tokens from; the last is asked where the others have no idea."""
        ...

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """The KV caches of its models: of the same sequence."""
        ...

    def propose(self, tokens: Sequence[int]) -> Steps[Proposal]:
        """Draft tokens to follow `tokens`, as many as the plan allows; none where it has no idea.

        tokens: the sequence so far, which begins with those of the last call.
        """
        ...
