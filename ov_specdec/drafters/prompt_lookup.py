"""Prompt lookup: draft what followed an earlier occurrence of the last tokens."""

from collections.abc import Sequence

from ov_specdec.drafters.base import Declined, Proposal, Steps
from ov_specdec.planning.draft_length import Plan, ask
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.verification import Draft

SOURCE = "prompt-lookup"
DEFAULT_NGRAM_SIZE = 3


class PromptLookup:
    """Drafts by n-gram match in prompt and output: longest match first, most recent first.

    Implements `Drafter` and needs no model. Its index of the last end of each n-gram grows with the
    sequence, so a round needs no search. prompt: searched as if it preceded the sequence, for an
    encoder-decoder model's source. tokens: the sequence's first tokens, indexed at once. Source:
    prompt lookup decoding
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
                # Not a probability, but the policy learns the acceptance of each value.
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
        """Index the n-grams that got a follower since the last call."""
        for end in range(max(self._indexed, 1), len(tokens)):
            for size in range(1, min(self._max_size, end) + 1):
                self._follower[tuple(tokens[end - size : end])] = end
        self._indexed = len(tokens)


def _copy(tokens: Sequence[int], start: int, limit: int) -> list[int]:
    """`limit` tokens from `start` on, continued with the copies at the end of the sequence."""
    copies: list[int] = []
    for position in range(start, start + limit):
        overrun = position - len(tokens)
        copies.append(copies[overrun] if overrun >= 0 else tokens[position])
    return copies
