"""Chooses a generation's drafter: a draft model, suffix matches, both, prompt lookup, or none."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from ov_specdec.cache.slot import EncoderInput
from ov_specdec.drafters.base import Drafter
from ov_specdec.drafters.hidden_states import HeadCache, HeadDrafter
from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.drafters.other_tokenizer import (
    IntersectionCache,
    RetokenizedDrafter,
    TranslatedCache,
)
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.drafters.suffix_index import EarlierOutputs, SuffixIndex
from ov_specdec.errors import Option, OptionError, SessionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.policies import follows_itself
from ov_specdec.runner.base import Runner
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.text.pairing import TokenizerPair

DrafterName = Literal["model", "suffix", "both", "prompt-lookup", "none"]


@dataclass(frozen=True, eq=False)
class DrafterInput:
    """A checked prompt with its options, from which its drafter is made.

    A drafter indexes or translates the text when it is made: that takes time, and would delay all
    sequences if done within a step.

    main, draft: the models. options: with all defaults. tokens: the first ones of the sequence.
    draft_sampler: of the draft model. namespace: of its KV cache and of earlier outputs.
    references: an index of texts that the output may repeat. earlier: earlier outputs. pairing: of
    a draft model with another tokenizer. encoder_input: if it is a text, it is searched like a
    reference text.
    """

    main: Runner
    draft: Runner | None
    options: GenerationOptions
    tokens: list[int]
    draft_sampler: Sampler = Sampler()
    namespace: Hashable = None
    references: SuffixIndex | None = None
    earlier: EarlierOutputs = field(default_factory=EarlierOutputs)
    pairing: TokenizerPair | None = None
    encoder_input: EncoderInput | None = None

    @property
    def encoder_ids(self) -> Sequence[int]:
        """The ids of an encoder input that is a text."""
        return self.encoder_input.ids if self.encoder_input else ()


Make = Callable[[DrafterInput], Drafter]


def draft_model(given: DrafterInput) -> Drafter:
    """A draft model; its pairing decides what holds its ids."""
    if given.draft is None:
        raise SessionError("a drafter with a draft model was made without one")
    namespace = given.encoder_input or given.namespace
    floor = given.options.assistant_confidence_threshold
    if given.draft.feature_size is not None:
        return HeadDrafter(HeadCache(given.draft, namespace), given.draft_sampler, floor)
    if given.pairing is None:
        return ModelDrafter(DraftCache(given.draft, namespace), given.draft_sampler, floor)
    paired = given.draft, given.pairing, given.tokens, namespace
    if given.pairing.used == "intersection":
        return ModelDrafter(IntersectionCache(*paired), given.draft_sampler, floor)
    return RetokenizedDrafter(TranslatedCache(*paired), floor)


def suffix_matches(given: DrafterInput) -> Drafter:
    """Suffix matches in the text, in reference texts and, if repeatable, in earlier outputs."""
    earlier: Callable[[], Sequence[SuffixIndex]] = tuple
    if not follows_itself(given.options, given.main):
        given.earlier.take_in()
        earlier = partial(given.earlier.indexes, given.namespace)
    texts = [given.encoder_ids] if given.encoder_ids else []
    return SuffixDrafter(texts, earlier, given.tokens, given.references)


def prompt_lookup(given: DrafterInput) -> Drafter:
    """The most recent match of a few tokens."""
    options = given.options
    limits = options.max_matching_ngram_size, options.prompt_lookup_num_tokens
    return PromptLookup(*limits, given.encoder_ids, given.tokens)


OF_MODELS = ("assistant_confidence_threshold",)
OF_LOOKUP = ("prompt_lookup_num_tokens", "max_matching_ngram_size")


@dataclass(frozen=True)
class DrafterKind:
    """A named way to draft.

    makes: functions that make its drafters. The planner takes the best of their offers; constant
    and heuristic lengths take the first.
    options: generation options that only some drafters support, of which this one is one.
    """

    name: str
    makes: tuple[Make, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def has_draft_model(self) -> bool:
        """Whether it drafts with a model."""
        return draft_model in self.makes

    @property
    def searches_earlier(self) -> bool:
        """Whether it searches earlier outputs."""
        return suffix_matches in self.makes

    def make(self, given: DrafterInput) -> tuple[Drafter, ...]:
        """The drafters of one sequence; none for plain decoding. Checks its options.

        Reference texts are searched with every kind of drafter, and first.
        """
        self.check(given.options)
        makes = self.makes
        if given.options.reference_texts:
            makes = (suffix_matches, *[make for make in makes if make is not suffix_matches])
        if given.options.num_assistant_tokens == 0:
            return ()
        return tuple([make(given) for make in makes])

    def check(self, options: GenerationOptions) -> None:
        """Refuse options that this drafter does not support."""
        if options.num_assistant_tokens == 0:
            return
        for name in (*OF_MODELS, *OF_LOOKUP):
            if getattr(options, name) and name not in self.options:
                users = [kind.name for kind in KINDS if name in kind.options]
                either = " or ".join(f"{{{user}}}" for user in users)
                raise OptionError(
                    f"{{option}} needs {either}, not {self.name}",
                    option=Option(name, getattr(options, name)),
                    **{user: Option("drafter", user) for user in users},
                )
        has_drafter = self.makes or options.reference_texts
        if not has_drafter and options.num_assistant_tokens != "auto":
            raise OptionError(
                "{num_assistant_tokens} needs a drafter, and {drafter} has none: leave out one of "
                "the two",
                num_assistant_tokens=options.num_assistant_tokens,
                drafter=self.name,
            )


KINDS = (
    DrafterKind("model", (draft_model,), OF_MODELS),
    DrafterKind("suffix", (suffix_matches,)),
    DrafterKind("both", (draft_model, suffix_matches), OF_MODELS),
    DrafterKind("prompt-lookup", (prompt_lookup,), OF_LOOKUP),
    DrafterKind("none"),
)
"""All kinds of a `DrafterName`. Others are passed as a `DrafterKind`."""

WITH_DRAFT = tuple(kind.name for kind in KINDS if kind.has_draft_model)


def kind_of(drafter: str | DrafterKind) -> DrafterKind:
    """The kind with this (valid) name, or the given kind itself."""
    if isinstance(drafter, DrafterKind):
        return drafter
    return next(kind for kind in KINDS if kind.name == drafter)
