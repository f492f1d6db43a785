"""How a draft model drafts for a main model: with the same tokenizer, or paired with another."""

from collections.abc import Callable
from dataclasses import dataclass

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.speculation.drafters.base import Drafter
from ov_specdec.speculation.drafters.intersection import IntersectionCache
from ov_specdec.speculation.drafters.model import DraftCache, ModelDrafter
from ov_specdec.speculation.drafters.retokenize import RetokenizedDrafter
from ov_specdec.speculation.drafters.translated import TranslatedCache
from ov_specdec.text.pairing import TokenizerPair, UsedPairing
from ov_specdec.text.translation import Translation


@dataclass(frozen=True)
class DraftModel:
    """A draft model's cache, told in the main model's ids; and what makes a drafter with it."""

    cache: DraftCache
    make: Callable[[Sampler], Drafter]


def draft_model(cache: DraftCache) -> DraftModel:
    """One that has the main model's vocabulary."""
    return DraftModel(cache, lambda sampler: ModelDrafter(cache, sampler))


def paired_model(cache: CachedSequence, tokenizers: TokenizerPair, name: UsedPairing) -> DraftModel:
    """One that has another."""
    special = tokenizers.common.special
    translated = TranslatedCache(cache, Translation(tokenizers.main, tokenizers.draft, special))
    if name == "intersection":
        common = tokenizers.common
        return draft_model(IntersectionCache(translated, common, tokenizers.main_size))
    return DraftModel(translated, lambda _: RetokenizedDrafter(translated, tokenizers))
