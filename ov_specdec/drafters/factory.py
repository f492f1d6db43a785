"""Chooses a generation's drafter: a draft model, suffix matches, both, prompt lookup, or none."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Literal

from ov_specdec.drafters.base import Drafter
from ov_specdec.drafters.cascade import Cascade
from ov_specdec.drafters.earlier_outputs import EarlierOutputs
from ov_specdec.drafters.pairing import DraftModel
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.drafters.references import References
from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.drafters.suffix_index import SuffixIndex
from ov_specdec.errors import Option, OptionError, SessionError
from ov_specdec.options import GenerationOptions
from ov_specdec.runner.source import Source
from ov_specdec.sampling.samplers import Sampler

DrafterName = Literal["model", "suffix", "both", "prompt-lookup", "none"]


@dataclass(frozen=True)
class Beginning:
    """The state of a sequence before it runs, for its drafter.

    A drafter indexes or translates the text when it is made: that takes time, and would delay all
    sequences if done within a step.

    tokens: its first tokens. sampler: chooses a draft model's tokens. namespace: of its KV cache
    and of earlier outputs. references: the reference texts. source: the input of an encoder-decoder
    model; if it is a text, its ids are searched like a reference text. looks_back: whether earlier
    outputs may be searched. draft: the draft model, if any.
    """

    options: GenerationOptions
    sampler: Sampler
    namespace: Hashable
    tokens: Sequence[int]
    references: References = References()
    source: Source | None = None
    looks_back: bool = True
    draft: DraftModel | None = None
    earlier: EarlierOutputs = field(default_factory=EarlierOutputs)


Make = Callable[[Beginning], Drafter]


def draft_model(beginning: Beginning) -> Drafter:
    """A draft model, with its pairing."""
    if beginning.draft is None:
        raise SessionError("a drafter with a draft model was made without one")
    namespace = beginning.source or beginning.namespace
    return beginning.draft.make(beginning.sampler, namespace, beginning.tokens)


def suffix_matches(beginning: Beginning) -> Drafter:
    """Suffix matches in the text, in reference texts and in earlier outputs."""
    earlier: Callable[[], Sequence[SuffixIndex]] = tuple
    if beginning.looks_back:
        beginning.earlier.take_in()
        earlier = partial(beginning.earlier.indexes, beginning.namespace)
    source = beginning.source.ids if beginning.source else ()
    references = beginning.references if beginning.references.texts else None
    return SuffixDrafter([source] if source else [], earlier, beginning.tokens, references)


def prompt_lookup(beginning: Beginning) -> Drafter:
    """The most recent match of a few tokens."""
    options = beginning.options
    limits = options.max_matching_ngram_size, options.prompt_lookup_num_tokens
    source = beginning.source.ids if beginning.source else ()
    return PromptLookup(*limits, source, beginning.tokens)


@dataclass(frozen=True)
class DrafterKind:
    """A named way to draft.

    makes: functions that make its drafters; each drafts if those before it have no draft tokens.
    options: generation options that only some drafters support, of which this one is one.
    """

    name: str
    makes: tuple[Make, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def has_draft_model(self) -> bool:
        """Whether it drafts with a model."""
        return draft_model in self.makes


OF_MODELS = ("assistant_confidence_threshold",)
OF_LOOKUP = ("prompt_lookup_num_tokens", "max_matching_ngram_size")

KINDS = (
    DrafterKind("model", (draft_model,), OF_MODELS),
    DrafterKind("suffix", (suffix_matches,)),
    DrafterKind("both", (suffix_matches, draft_model), OF_MODELS),
    DrafterKind("prompt-lookup", (prompt_lookup,), OF_LOOKUP),
    DrafterKind("none"),
)
"""All kinds with a name. A new drafter is a line here, or is passed as a `DrafterKind`."""

WITH_DRAFT = tuple(kind.name for kind in KINDS if kind.has_draft_model)


def kind_of(drafter: str | DrafterKind) -> DrafterKind:
    """The kind with this (valid) name, or the given kind itself."""
    if isinstance(drafter, DrafterKind):
        return drafter
    return next(kind for kind in KINDS if kind.name == drafter)


@dataclass(frozen=True)
class DrafterFactory:
    """Makes a new drafter for each generation.

    draft: the draft model, if any. earlier: outputs of earlier generations.
    """

    kind: DrafterKind
    draft: DraftModel | None = None
    earlier: EarlierOutputs = field(default_factory=EarlierOutputs)

    def make(self, beginning: Beginning) -> Drafter | None:
        """The drafter for these options; None for plain decoding.

        Reference texts are searched with every kind of drafter.
        """
        makes = self.kind.makes
        if beginning.options.reference_texts and suffix_matches not in makes:
            makes = (suffix_matches, *makes)
        if beginning.options.num_assistant_tokens == 0 or not makes:
            return None
        known = replace(beginning, draft=self.draft, earlier=self.earlier)
        return reduce(Cascade, [make(known) for make in makes])

    def remember(self, namespace: Hashable, tokens: Sequence[int], num_prompt: int) -> None:
        """Keep a finished output for later generations of this namespace. Thread-safe."""
        if suffix_matches in self.kind.makes:
            self.earlier.remember(namespace, tokens, num_prompt)

    def check(self, options: GenerationOptions) -> None:
        """Refuse options that this drafter does not support."""
        if options.num_assistant_tokens == 0:
            return
        for name in dict.fromkeys(name for kind in KINDS for name in kind.options):
            if getattr(options, name) and name not in self.kind.options:
                users = [kind.name for kind in KINDS if name in kind.options]
                either = [part for user in users for part in (" or ", Option("drafter", user))]
                raise OptionError(
                    Option(name, getattr(options, name)),
                    " needs ",
                    *either[1:],
                    f", not {self.kind.name}",
                )
        has_drafter = self.kind.makes or options.reference_texts
        if not has_drafter and options.num_assistant_tokens != "auto":
            raise OptionError(
                Option("num_assistant_tokens", options.num_assistant_tokens),
                " needs a drafter, and ",
                Option("drafter", self.kind.name),
                " has none: leave out one of the two",
            )
