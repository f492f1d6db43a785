"""A draft model whose text the main model's tokenizer encodes again."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise, takewhile
from math import prod

from ov_specdec.drafters.base import Proposal
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.drafters.translated import TranslatedCache
from ov_specdec.planning.draft_length import Offer, Plan
from ov_specdec.runner.cached_sequence import CachedSequence, Passes
from ov_specdec.sampling.samplers import GreedySampler
from ov_specdec.sampling.verification import Draft
from ov_specdec.text.pairing import TokenizerPair, whole_characters


class RetokenizedDrafter:
    """Drafts text, and proposes the main model's ids of it. Implements `Drafter`.

    The draft model drafts greedily, and its draft tokens count as certain, because the distribution
    of re-encoded text is unknown. No token needs to be in both vocabularies. Source: Timor et al.,
    algorithm 2 (string-level exact match, arXiv 2502.05202); universal assisted generation in
    transformers.

    tokens: the sequence's first tokens, translated at once.
    """

    def __init__(
        self, cache: CachedSequence, tokenizers: TokenizerPair, tokens: Sequence[int] = ()
    ) -> None:
        self._cache = TranslatedCache(cache, tokenizers, tokens)
        self._drafter = ModelDrafter(cache, GreedySampler(), self._cache)
        self._main, self._draft = tokenizers.main, tokenizers.draft
        self._main_special = {b: a for a, b in tokenizers.common.special.items()}

    @property
    def sources(self) -> tuple[str, ...]:
        """The source of a draft model."""
        return self._drafter.sources

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """The draft model's cache."""
        return self._drafter.caches

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """The draft model's."""
        return self._drafter.offers(tokens)

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """The main model's ids of the drafted text, at most as many as planned."""
        drafted = yield from self._drafter.propose(tokens, plan)
        draft_tokens, starts = self._encode(drafted.draft.tokens)
        draft_tokens = draft_tokens[: plan.length]
        confidences = drafted.confidences and self._spread(
            drafted.confidences, starts, draft_tokens
        )
        return drafted._replace(draft=Draft(draft_tokens), confidences=confidences)

    def _encode(self, drafted: Sequence[int]) -> tuple[list[int], list[int]]:
        """Main ids for draft ids up to the first special one, and the draft ids' text offsets.

        If the sequence ends within a character, the draft repeats that character's first bytes.
        """
        rest = self._cache.rest
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

    def _spread(
        self, confidences: Sequence[float], starts: Sequence[int], draft_tokens: Sequence[int]
    ) -> tuple[float, ...]:
        """The confidence of each draft token, from the draft's tokens that begin in it."""
        ends = accumulate(len(self._main.bytes_of[token]) or 1 for token in draft_tokens)
        counts = [0, *(bisect_left(starts, end) for end in ends)]
        return tuple(prod(confidences[first:last]) for first, last in pairwise(counts))
