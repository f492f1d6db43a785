"""How a draft model drafts for a main model: with the same tokenizer, or paired with another."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ov_specdec.drafters.base import Drafter
from ov_specdec.drafters.intersection import IntersectionCache
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.drafters.retokenize import RetokenizedDrafter
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.text.pairing import TokenizerPair, UsedPairing


@dataclass(frozen=True)
class Pairing:
    """The translation between two models with different tokenizers."""

    name: UsedPairing
    tokenizers: TokenizerPair


@dataclass(frozen=True)
class DraftModel:
    """A draft model and its pairing; None if it has the main model's tokenizer."""

    runner: Runner
    pairing: Pairing | None = None

    def make(
        self, sampler: Sampler, namespace: Hashable = None, tokens: Sequence[int] = ()
    ) -> Drafter:
        """A drafter for one sequence.

        sampler: chooses draft tokens, unless a pairing takes the most likely ones. tokens: the
        sequence's first tokens, translated at once if the draft has another tokenizer.
        """
        cache = CachedSequence(self.runner, namespace)
        if self.pairing is None:
            return ModelDrafter(cache, sampler)
        tokenizers = self.pairing.tokenizers
        if self.pairing.name == "intersection":
            return ModelDrafter(cache, sampler, IntersectionCache(cache, tokenizers, tokens))
        return RetokenizedDrafter(cache, tokenizers, tokens)

    def ids(self, tokens: Sequence[int]) -> list[int]:
        """Ids of the main model translated to this model's."""
        if self.pairing is None:
            return list(tokens)
        translation = self.pairing.tokenizers.translation()
        translation.read(tokens)
        return translation.ids
