"""Which drafter a generation gets: a draft model, suffix matches, both, prompt lookup, or none."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Literal

from ov_specdec.checks import shorten
from ov_specdec.drafters.base import Drafter
from ov_specdec.drafters.cascade import Cascade
from ov_specdec.drafters.earlier_outputs import EarlierOutputs
from ov_specdec.drafters.pairing import DraftModel
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.errors import OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.runner.source import Source
from ov_specdec.sampling.samplers import Sampler

DrafterName = Literal["model", "suffix", "both", "prompt-lookup", "none"]
WITH_DRAFT = ("model", "both")
WITH_SUFFIX = ("suffix", "both")
WITH_LOOKUP = ("prompt-lookup",)

NEEDED_DRAFTERS = {
    "prompt_lookup_num_tokens": WITH_LOOKUP,
    "max_matching_ngram_size": WITH_LOOKUP,
    "reference_texts": WITH_SUFFIX,
    "assistant_confidence_threshold": WITH_DRAFT,
}
"""Options that mean something to some drafters only."""


@dataclass(frozen=True)
class DrafterFactory:
    """Makes a new drafter for each generation.

    draft: the draft model, if any. earlier: outputs of generations before.
    """

    name: DrafterName
    draft: DraftModel | None = None
    earlier: EarlierOutputs = field(default_factory=EarlierOutputs)

    def make(
        self,
        options: GenerationOptions,
        sampler: Sampler,
        namespace: Hashable,
        tokens: Sequence[int],
        references: Iterable[Sequence[int]] = (),
        source: Source | None = None,
        *,
        looks_back: bool = True,
    ) -> Drafter | None:
        """The drafter that the options ask for; None for plain decoding.

        What is known of the text is indexed, or translated, here: that takes time, and is not to be
        done within a step, for which others wait. sampler: how a draft model chooses candidates.
        namespace: of its KV cache, and of the earlier outputs. tokens: what the sequence begins
        with. references: ids of the reference texts. source: what an encoder-decoder model decodes
        from; of a text, its ids are looked into like a reference text. looks_back: whether earlier
        outputs may be looked into.
        """
        if options.num_assistant_tokens == 0:
            return None
        drafters: list[Drafter] = []
        prompt = source.ids if source else ()
        if self.name in WITH_SUFFIX:
            if looks_back:
                self.earlier.take_in()
            earlier = partial(self.earlier.indexes, namespace) if looks_back else tuple
            texts = [prompt, *references] if prompt else references
            drafters.append(SuffixDrafter(texts, earlier, tokens))
        if self.name in WITH_LOOKUP:
            limits = options.max_matching_ngram_size, options.prompt_lookup_num_tokens
            drafters.append(PromptLookup(*limits, prompt, tokens))
        if self.draft is not None:
            drafters.append(self.draft.make(sampler, source or namespace, tokens))
        return reduce(Cascade, drafters) if drafters else None

    def remember(self, namespace: Hashable, tokens: Sequence[int], num_prompt: int) -> None:
        """Keep a finished output for later generations of this namespace. From any thread."""
        if self.name in WITH_SUFFIX:
            self.earlier.remember(namespace, tokens, num_prompt)

    def check(self, options: GenerationOptions) -> None:
        """Refuse options that this drafter has no use for."""
        if options.num_assistant_tokens == 0:
            return
        for name, drafters in NEEDED_DRAFTERS.items():
            if getattr(options, name) and self.name not in drafters:
                raise OptionError(
                    f"{name}={shorten(getattr(options, name))} needs drafter="
                    f"{' or '.join(map(repr, drafters))}, not {self.name!r}"
                )
        if self.name == "none" and options.num_assistant_tokens != "auto":
            raise OptionError(
                f"num_assistant_tokens={options.num_assistant_tokens} needs a drafter, and "
                "drafter='none' has none: leave out one of the two"
            )
