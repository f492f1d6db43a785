"""A draft model with another tokenizer that proposes tokens of both vocabularies."""

from collections.abc import Sequence

import numpy as np

from ov_specdec.drafters.translated import TranslatedCache
from ov_specdec.runner.base import ForwardOutput
from ov_specdec.runner.cached_sequence import CachedSequence, Passes
from ov_specdec.text.pairing import TokenizerPair

OUTSIDE = np.float32(-1e30)
"""The logit of tokens that the draft does not have: probability 0 next to any other, but finite, so
that they can be chosen if processors forbid all others."""


class IntersectionCache:
    """Scores the main model's ids with a draft of another vocabulary. Implements `DraftCache`.

    Its rows hold the draft's logits at the main model's ids, so a sampler restricts the draft to
    common tokens, and normalizes. Every draft token then comes from a known distribution over the
    main model's vocabulary, and verification is exact in greedy decoding and sampling. Source:
    Timor et al., algorithm 4 (token-level intersection, arXiv 2502.05202).

    tokens: the sequence's first tokens, translated at once.
    """

    def __init__(
        self, cache: CachedSequence, tokenizers: TokenizerPair, tokens: Sequence[int] = ()
    ) -> None:
        self._cache = TranslatedCache(cache, tokenizers, tokens)
        self._common = tokenizers.common
        self._draft_of = self._common.draft_of
        self._row = np.full((1, tokenizers.main_size), OUTSIDE)

    def room(self, tokens: Sequence[int]) -> int:
        """Maximum number of further draft tokens."""
        return self._cache.room(tokens)

    def advance(
        self,
        tokens: Sequence[int],
        draft_tokens: Sequence[int] = (),
        num_rows: int | None = None,  # noqa: ARG002
    ) -> Passes[ForwardOutput]:
        """The row after the last token, [1, vocab] of the main model's vocabulary.

        After a draft token outside the draft's vocabulary no pass runs.
        """
        try:
            draft_ids = [self._draft_of[token] for token in draft_tokens]
        except KeyError:
            return ForwardOutput(np.full_like(self._row, OUTSIDE), 0, 0, 0, 0.0)
        done = yield from self._cache.advance(tokens, draft_ids)
        self._row[0, self._common.main_ids] = done.logits[0, self._common.draft_ids]
        return done._replace(logits=self._row)
