"""Drafts with a model that was trained to give several tokens in one pass."""

from collections.abc import Sequence

import numpy as np

from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.planning.acceptance import MODEL
from ov_specdec.planning.draft_length import Offer
from ov_specdec.runner.base import ForwardOutput
from ov_specdec.runner.cached_sequence import CachedSequence, Passes
from ov_specdec.sampling.samplers import Sampler


class ParallelDrafter(ModelDrafter):
    """Drafts with a parallel draft model, one pass for all draft tokens. Implements `Drafter`.

    The pass feeds the tokens that the cache lacks, and mask tokens in the places of all draft
    tokens but the last. So no row depends on a drafted token, but each is sampled with those before
    in the history. The next pass rolls the mask tokens back.
    Source: An et al. (PARD, arXiv 2504.18583).
    """

    _offer = Offer(MODEL, takes_one_pass=True)

    def __init__(self, cache: CachedSequence, sampler: Sampler, mask_token: int) -> None:
        super().__init__(cache, sampler)
        self._mask_token = mask_token

    def _next_rows(
        self, tokens: Sequence[int], draft_tokens: Sequence[int], length: int
    ) -> Passes[ForwardOutput]:
        """A pass for the rows of all draft tokens that are missing."""
        masks = [self._mask_token] * (length - len(draft_tokens) - 1)
        latest, fed = self._cache.latest(tokens), [*draft_tokens, *masks]
        done = yield from self.caches[0].advance(latest, fed, len(masks) + 1)
        done.logits[:, self._mask_token : self._mask_token + 1] = -np.inf  # it is no text
        return done
