"""Draft models with another tokenizer: they propose common tokens, or text to encode again."""

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise, takewhile
from math import prod

import numpy as np

from ov_specdec.drafters.base import Proposal
from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.planning.plan import Plan
from ov_specdec.runner.base import ForwardOutput, Runner
from ov_specdec.runner.cached_sequence import Passes
from ov_specdec.sampling.logits import Logits
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.sampling.verification import Draft
from ov_specdec.text.pairing import TokenizerPair, whole_characters

OUTSIDE = np.float32(-1e30)
"""The logit of tokens that the draft does not have: probability 0 next to any other, but finite, so
that they can be chosen if processors forbid all others."""


class TranslatedCache(DraftCache):
    """Holds a sequence in the draft model's ids.

    Tokens of the sequence are the main model's ids, draft tokens the draft's own. tokens: the
    sequence's first tokens, translated at once.
    """

    def __init__(
        self,
        runner: Runner,
        tokenizers: TokenizerPair,
        tokens: Sequence[int] = (),
        namespace: Hashable = None,
    ) -> None:
        super().__init__(runner, namespace)
        self.tokenizers = tokenizers
        self.translation = tokenizers.translation()
        self.translation.read(tokens)

    def draft_room(self, tokens: Sequence[int]) -> int:
        """Maximum number of draft tokens; none if no token of the sequence has a draft id."""
        self.translation.read(tokens)
        return super().draft_room(self.translation.ids) if self.translation.ids else 0

    def num_unread(self, tokens: Sequence[int]) -> int:
        """See `DraftCache`."""
        self.translation.read(tokens)
        return super().num_unread(self.translation.ids)

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """See `CachedSequence`. tokens: main ids; draft_tokens: draft ids; logits: the draft's."""
        self.translation.read(tokens)
        ids, num_stable = self.translation.ids, self.translation.num_stable
        # The window's ids may change, so they are fed like draft tokens, which can be rolled back.
        unstable = [*ids[num_stable:], *draft_tokens]
        return super().advance(ids[:num_stable], unstable, num_rows)


class IntersectionCache(TranslatedCache):
    """Scores the main model's ids with a draft of another vocabulary.

    Its rows hold the draft's logits at the main model's ids, so a sampler restricts the draft to
    common tokens, and normalizes. Every draft token then comes from a known distribution over the
    main model's vocabulary, and verification is exact in greedy decoding and sampling. Source:
    Timor et al., algorithm 4 (token-level intersection, arXiv 2502.05202).
    """

    @cached_property
    def _row(self) -> Logits:
        return np.full((1, self.tokenizers.main_size), OUTSIDE)

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """The row after the last token, [1, vocab] of the main model's vocabulary.

        After a draft token outside the draft's vocabulary no pass runs.
        """
        try:
            draft_ids = [self.tokenizers.draft_of[token] for token in draft_tokens]
        except KeyError:
            return ForwardOutput(np.full_like(self._row, OUTSIDE), 0, 0, 0, 0, 0.0)
        done = yield from super().advance(tokens, draft_ids, num_rows)
        main_ids, ids = self.tokenizers.common
        self._row[0, main_ids] = done.logits[0, ids]
        return done._replace(logits=self._row)


class RetokenizedDrafter(ModelDrafter):
    """Drafts text, and proposes the main model's ids of it.

    The draft model drafts greedily, and its draft tokens count as certain, because the distribution
    of re-encoded text is unknown. No token needs to be in both vocabularies. Source: Timor et al.,
    algorithm 2 (string-level exact match, arXiv 2502.05202); universal assisted generation in
    transformers.
    """

    def __init__(self, cache: TranslatedCache, min_confidence: float = 0.0) -> None:
        super().__init__(cache, Sampler(), min_confidence)
        self._translation, tokenizers = cache.translation, cache.tokenizers
        self._main, self._draft = tokenizers.main, tokenizers.draft
        self._main_special = {b: a for a, b in tokenizers.special.items()}

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """The main model's ids of the drafted text, at most as many as planned."""
        drafted = yield from super().propose(tokens, plan)
        draft_tokens, starts = self._encode(drafted.draft.tokens)
        draft_tokens = draft_tokens[: plan.length]
        confidences = drafted.confidences
        if confidences:  # of each draft token, from the draft's tokens that begin in it
            ends = accumulate(len(self._main.bytes_of[token]) or 1 for token in draft_tokens)
            counts = [0, *(bisect_left(starts, end) for end in ends)]
            confidences = tuple(prod(confidences[a:b]) for a, b in pairwise(counts))
        return drafted._replace(draft=Draft(draft_tokens), confidences=confidences)

    def _encode(self, drafted: Sequence[int]) -> tuple[list[int], list[int]]:
        """Main ids for draft ids up to the first special one, and the draft ids' text offsets.

        If the sequence ends within a character, the draft repeats that character's first bytes.
        """
        rest = self._translation.rest  # not cached
        plain = list(takewhile(self._draft.bytes_of.__getitem__, drafted))
        text = self._draft.decode(plain)
        if not text.startswith(rest):
            return [], []
        starts = list(accumulate((len(self._draft.bytes_of[t]) for t in plain), initial=-len(rest)))
        text = text[len(rest) :]
        if len(plain) == len(drafted):
            return self._main.encode(text[: whole_characters(text)]), starts
        special = self._main_special.get(drafted[len(plain)])
        return self._main.encode(text) + ([] if special is None else [special]), starts
