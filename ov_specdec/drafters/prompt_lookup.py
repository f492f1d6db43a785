"""Prompt lookup: draft what followed an earlier occurrence of the last tokens."""

from array import array
from collections.abc import Sequence

import numpy as np

from ov_specdec.drafters.base import Proposal
from ov_specdec.drafters.suffix_index import Match
from ov_specdec.planning.plan import Offer, Plan
from ov_specdec.runner.cached_sequence import CachedSequence, Passes
from ov_specdec.sampling.verification import Draft

SOURCE = "prompt-lookup"
DEFAULT_NGRAM_SIZE = 3


class PromptLookup:
    """Drafts by n-gram match in prompt and output: longest match first, most recent first.

    Implements `Drafter` and needs no model. Each round searches the text, which takes microseconds
    and no memory besides its ids. prompt: searched as if it preceded the sequence, for an
    encoder-decoder model's source. tokens: the sequence's first tokens. Source: prompt lookup
    decoding (https://github.com/apoorvumang/prompt-lookup-decoding).
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
        self._max_size = max_matching_ngram_size or DEFAULT_NGRAM_SIZE
        self._max_draft_tokens = max_draft_tokens
        self._text = array("i", prompt)
        self._num_read = 0
        self._match = Match(self._text, (), 0)
        self._read(tokens)

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """The most recent occurrence of the longest matching suffix, if there is one."""
        self._read(tokens)
        size, start = self._find()
        self._match = Match(self._text, (start,), size)
        # Not a probability, but the policy learns the acceptance of each value.
        return [Offer(SOURCE, size / (size + 1), self._text[start])] if size else []

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:  # noqa: ARG002
        """The tokens that followed it."""
        yield from ()
        length, size = min(plan.length, self._max_draft_tokens or plan.length), self._match.length
        copies = self._match.continuation(length)
        return Proposal(Draft(copies), (size / (size + 1),) * length)

    def _read(self, tokens: Sequence[int]) -> None:
        self._text.extend(tokens[self._num_read :])
        self._num_read = len(tokens)

    def _find(self) -> tuple[int, int]:
        """Length of the longest match, and the position after its most recent occurrence.

        The length is 0 if nothing matches.
        """
        text = np.frombuffer(self._text, dtype=np.intc)
        ends = np.flatnonzero(text[:-1] == text[-1])  # last tokens of matches
        if not len(ends):
            return 0, 0
        size = 1
        while size < self._max_size:
            longer = ends[ends >= size]
            longer = longer[text[longer - size] == text[-1 - size]]
            if not len(longer):
                break
            size, ends = size + 1, longer
        return size, int(ends[-1]) + 1
