"""Prompt lookup: what followed the last tokens when they occurred in the sequence before."""

from collections.abc import Sequence

from ov_specdec.drafters.base import Declined, Proposal, Steps
from ov_specdec.planning.draft_length import Plan, ask
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.verification import Draft

SOURCE = "prompt-lookup"
DEFAULT_NGRAM_SIZE = 3


class PromptLookup:
    """Drafts by n-gram match in prompt and output: longest match first, most recent first.

    Implements `Drafter` and needs no model. Its index of where each n-gram last ended grows with
    the sequence, so that a round costs no search. prompt: what is looked into as if it stood before
    the sequence: an encoder-decoder model's source. tokens: what the sequence begins with, indexed
    at once. Source: prompt lookup decoding
    (https://github.com/apoorvumang/prompt-lookup-decoding).
    """

    sources: tuple[str, ...] = (SOURCE,)
    caches: tuple[CachedSequence, ...] = ()

    def __init__(
        self,
        max_matching_ngram_size: int | None = None,
        max_draft_tokens: int | None = None,
        prompt: Sequence[int] = (),
        tokens: Sequence[int] = (),
    ) -> None:
        self._prompt = prompt
        self._max_size = max_matching_ngram_size or DEFAULT_NGRAM_SIZE
        self._max_draft_tokens = max_draft_tokens
        # Maps an n-gram to the position after its most recent occurrence with a follower.
        self._follower: dict[tuple[int, ...], int] = {}
        self._indexed = 0
        self._index([*prompt, *tokens])

    def propose(self, tokens: Sequence[int]) -> Steps[Proposal]:
        """The tokens that followed the most recent occurrence of the longest matching suffix."""
        if self._prompt:
            tokens = [*self._prompt, *tokens]
        self._index(tokens)
        for size in range(min(self._max_size, len(tokens) - 1), 0, -1):
            start = self._follower.get(tuple(tokens[-size:]))
            if start is not None:
                # No probability, but a measure of it: the policy learns what it is worth.
                confidence = size / (size + 1)
                plan = yield from ask(SOURCE, confidence)
                length = min(plan.length, self._max_draft_tokens or plan.length)
                if length == 0:
                    declined = Declined(SOURCE, confidence, tokens[start])
                    return Proposal(Draft([]), SOURCE, plan, declined=declined)
                draft = Draft(_copy(tokens, start, length))
                return Proposal(draft, SOURCE, plan, (confidence,) * length, confidence)
        return Proposal(Draft([]), SOURCE, Plan(0, "unmatched"))

    def _index(self, tokens: Sequence[int]) -> None:
        """Enter the n-grams that have got a follower since the last call."""
        for end in range(max(self._indexed, 1), len(tokens)):
            for size in range(1, min(self._max_size, end) + 1):
                self._follower[tuple(tokens[end - size : end])] = end
        self._indexed = len(tokens)


def _copy(tokens: Sequence[int], start: int, limit: int) -> list[int]:
    """`limit` tokens from `start` on, going on into the copies where the sequence ends."""
    copies: list[int] = []
    for position in range(start, start + limit):
        overrun = position - len(tokens)
        copies.append(copies[overrun] if overrun >= 0 else tokens[position])
    return copies
