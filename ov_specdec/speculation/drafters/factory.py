"""Which drafter a generation gets: a draft model, prompt lookup, both, or none."""

from dataclasses import dataclass
from functools import reduce
from typing import Literal

from ov_specdec.errors import OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.speculation.drafters.base import Drafter
from ov_specdec.speculation.drafters.cascade import Cascade
from ov_specdec.speculation.drafters.pairing import DraftModel
from ov_specdec.speculation.drafters.prompt_lookup import PromptLookup

DrafterName = Literal["model", "prompt-lookup", "both", "none"]
WITH_DRAFT = ("model", "both")
WITH_LOOKUP = ("prompt-lookup", "both")

NEEDED_DRAFTERS = {
    "prompt_lookup_num_tokens": WITH_LOOKUP,
    "max_matching_ngram_size": WITH_LOOKUP,
    "assistant_confidence_threshold": WITH_DRAFT,
}
"""Options that mean something to some drafters only."""


@dataclass(frozen=True)
class DrafterFactory:
    """Makes a new drafter for each generation. draft: the draft model, if any."""

    name: DrafterName
    draft: DraftModel | None = None

    def make(self, options: GenerationOptions, sampler: Sampler) -> Drafter | None:
        """The drafter that the options ask for; None for plain decoding.

        sampler: how a draft model chooses candidates. Raises `OptionError` for options that this
        drafter has no use for.
        """
        if options.num_assistant_tokens == 0:
            return None
        self.check(options)
        drafters: list[Drafter] = []
        if self.name in WITH_LOOKUP:
            limits = options.max_matching_ngram_size, options.prompt_lookup_num_tokens
            drafters.append(PromptLookup(*limits))
        if self.draft is not None:
            drafters.append(self.draft.make(sampler))
        return reduce(Cascade, drafters) if drafters else None

    def check(self, options: GenerationOptions) -> None:
        """Refuse options that this drafter has no use for."""
        if options.num_assistant_tokens == 0:
            return
        for name, drafters in NEEDED_DRAFTERS.items():
            if getattr(options, name) and self.name not in drafters:
                raise OptionError(
                    f"{name}={getattr(options, name)} needs drafter="
                    f"{' or '.join(map(repr, drafters))}, not {self.name!r}"
                )
        if self.name == "none" and options.num_assistant_tokens != "auto":
            raise OptionError(
                f"num_assistant_tokens={options.num_assistant_tokens} needs a drafter, and "
                "drafter='none' has none: leave out one of the two"
            )
