"""`SequenceFactory`: makes sequences of a main model, with their drafters, ready to run."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf

from ov_specdec.cache.slot import EncoderInput
from ov_specdec.drafters.factory import DrafterInput, DrafterKind
from ov_specdec.drafters.suffix_index import EarlierOutputs, SuffixIndex
from ov_specdec.engine.output import Output, Reader
from ov_specdec.engine.sequence import Request, Sequence
from ov_specdec.models.invariance import Invariance
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.policies import ConstantLength, LearnedStats, make_policy
from ov_specdec.results.stats import NOT_INVARIANT, GenerationStats, LengthLimit
from ov_specdec.runner.base import HiddenStatesReader, Runner
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.sampling.samplers import make_samplers
from ov_specdec.text.detokenizer import IncrementalDetokenizer
from ov_specdec.text.grammar import parser_of
from ov_specdec.text.pairing import TokenizerPair


@dataclass
class SequenceFactory:
    """A main model, a drafter for it, and what both have learned from earlier generations.

    eos_token_ids: default end-of-sequence tokens. draft, pairing: the draft model, if any, and how
    it drafts with another tokenizer. learned: cost curves and acceptance. invariance: the batch
    invariance of the main model. kept_tokens: those that the draft model may propose; None: all.
    earlier: outputs.
    """

    main: Runner
    drafter: DrafterKind
    eos_token_ids: frozenset[int]
    draft: Runner | None = None
    pairing: TokenizerPair | None = None
    learned: LearnedStats = field(default_factory=LearnedStats)
    invariance: Invariance | None = None
    kept_tokens: frozenset[int] | None = None
    earlier: EarlierOutputs = field(default_factory=EarlierOutputs)

    def make(
        self,
        tokens: list[int],
        options: GenerationOptions,
        text: IncrementalDetokenizer,
        references: SuffixIndex | None = None,
        source: EncoderInput | None = None,
        grammar: Grammar | None = None,
        reader: Reader | None = None,
        tenant: Hashable = None,
        remember: Callable[[Sequence], None] = lambda _: None,
    ) -> Sequence:
        """A sequence with its prompt and empty caches, and its drafters, which read the prompt.

        tokens: those that the decoder begins with. text: turns the others into text. references: an
        index of texts that the output may repeat. source: the prompt of an encoder-decoder model.
        tenant: whose it is; None: its `cache_salt` tells. Others: see `Request` and `Sequence`.
        """
        prompt = (source.ids if source else []) or tokens
        ends = options.ending_ids(self.eos_token_ids)
        sampler, draft_sampler = make_samplers(options, len(tokens), ends, prompt, grammar)
        namespace = source.namespace if source else namespace_of(options)
        own = tokens, draft_sampler, namespace, references, self.earlier
        given = DrafterInput(self.main, self.draft, options, *own, self.pairing, source)
        drafters = self.drafter.make(given)
        readers = [drafter for drafter in drafters if isinstance(drafter, HiddenStatesReader)]
        length, limit = self._length_limit(len(tokens), options.max_new_tokens)
        policy = make_policy(options, self.learned, self.main) if drafters else ConstantLength(0)
        owner = options.cache_salt if tenant is None else tenant
        asked = tokens, length, sampler, drafters, policy, options, grammar, owner
        stats = GenerationStats(
            len(prompt),
            batch_invariant=self.invariance.status if self.invariance else NOT_INVARIANT,
            max_sequences=self._max_sequences,
            length_limit=limit,
        )
        output = Output(text, stats, self.kept_tokens, partial(parser_of, options, grammar), reader)
        cache = CachedSequence(self.main, source or namespace, readers, len(tokens))
        return Sequence(Request(*asked), cache, output, remember)

    @cached_property
    def _max_sequences(self) -> int | None:
        models = [self.main] if self.draft is None else [self.main, self.draft]
        rooms = [n for model in models if (n := model.max_sequences) is not None]
        return min(rooms, default=None)

    def _length_limit(self, num_tokens: int, max_new_tokens: int | None) -> tuple[int, LengthLimit]:
        """The maximum length of a sequence of `num_tokens`, and the limit that sets it."""
        capacity = self.main.capacity
        limits: dict[LengthLimit, float] = {  # the first of equal ones counts
            "max_new_tokens": inf if max_new_tokens is None else num_tokens + max_new_tokens,
            "max_model_len": self.main.max_length,
            "kv_cache_size": inf if capacity is None else capacity,
        }
        name = min(limits, key=limits.__getitem__)
        return int(limits[name]), name


def namespace_of(options: GenerationOptions) -> Hashable:
    """Of the KV cache; without `cache_prompt` a new one, which shares nothing."""
    return options.cache_salt if options.cache_prompt else object()
