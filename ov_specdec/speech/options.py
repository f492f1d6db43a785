"""The options of a transcription, under the names of transformers' `generate` for Whisper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from ov_specdec.checks import make_plain, require_known
from ov_specdec.description import About, as_tuple, by_group, check_described, describe
from ov_specdec.errors import Option, OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.sampling.processors import LogitsProcessor
from ov_specdec.speech.settings import Task

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""As in openai/whisper."""

GENERATION = (
    *("max_new_tokens", "top_k", "top_p", "min_p", "typical_p", "seed"),
    *("repetition_penalty", "logit_bias", "bad_words_ids", "suppress_tokens"),
    *("no_repeat_ngram_size", "logits_processor"),
    *by_group(GenerationOptions)["Speculation"],
    "cache_salt",
)
"""Those of `GenerationOptions` that mean something for speech too."""


@dataclass(frozen=True)
class TranscriptionOptions:
    """Options of `transcribe`. Checked when made; `OptionError` names what is wrong.

    What an annotation says of an option is all that is said of it anywhere: see `About`.

    generation: others, which mean what they mean for text: those of `GENERATION`.
    """

    language: Annotated[
        str | None,
        About("Such as en or English.", unset="detected", metavar="L"),
    ] = None
    task: Annotated[
        Task, About("Write what is said, or translate it into English.", field=None)
    ] = "transcribe"
    return_timestamps: Annotated[
        bool,
        About(
            "Give segments with times.",
            "Beyond 30 s the model predicts them in any case.",
            flag=None,
            field=None,
        ),
    ] = False
    word_timestamps: Annotated[
        bool,
        About(
            "Give segments, and the times of their words.",
            "A decoder is compiled once more for them, when first asked for.",
            field=None,
        ),
    ] = False
    initial_prompt: Annotated[
        str | None,
        About(
            "Text before the recording, for style.",
            "Told before each window.",
            metavar="TEXT",
            field="prompt",
        ),
    ] = None
    temperature: Annotated[
        float | Sequence[float],
        About("Of several, one after the other is tried until an output is accepted.", low=0.0),
    ] = TEMPERATURES
    compression_ratio_threshold: Annotated[
        float | None,
        About(
            "Try outputs again that zlib shortens by more.", above=0.0, metavar="X|none", field=None
        ),
    ] = 2.4
    logprob_threshold: Annotated[
        float | None,
        About(
            "Try outputs again whose mean log-probability is lower.",
            high=0.0,
            metavar="X|none",
            field=None,
        ),
    ] = -1.0
    no_speech_threshold: Annotated[
        float | None,
        About(
            "Leave such outputs out where no speech is this likely.",
            low=0.0,
            high=1.0,
            metavar="X|none",
            field=None,
        ),
    ] = 0.6
    condition_on_prev_tokens: Annotated[
        bool, About("Tell the model the text before each window of 30 seconds.", field=None)
    ] = True
    silence_threshold: Annotated[
        float | None,
        About(
            "Skip windows that are nowhere as loud, in dB.",
            "Full scale is 0, so it is negative; no tenth of a second is as loud, and the model "
            "does not read them.",
            high=0.0,
            unit="dB",
            metavar="X|none",
            field=None,
        ),
    ] = -60.0
    generation: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_plain(self)
        check_described(self)
        object.__setattr__(self, "temperature", as_tuple(self.temperature))
        if not self.temperatures:
            raise OptionError(Option("temperature", ()), " must be a number, or several")
        for temperature in self.temperatures:
            self.at(temperature)

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> "TranscriptionOptions":
        """Options by name; `OptionError` for a name that does not exist."""
        own = describe(cls)
        require_known(options, [*own, *GENERATION], "option")
        chosen = {name: value for name, value in options.items() if name in own}
        shared = {name: value for name, value in options.items() if name in GENERATION}
        return cls(**chosen, generation=shared)

    @property
    def gives_segments(self) -> bool:
        """Whether segments with times are asked for; words are parts of them."""
        return self.return_timestamps or self.word_timestamps

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Those that are tried, in their order."""
        return as_tuple(self.temperature)

    def at(
        self, temperature: float, processors: Sequence[LogitsProcessor] = ()
    ) -> GenerationOptions:
        """The options of the generation at this temperature. processors: before the user's own."""
        given = {"max_new_tokens": None, **self.generation, "temperature": temperature}
        if self.logprob_threshold is not None:
            given.update(logprobs=0, logprobs_mode="processed_logprobs")
        options = GenerationOptions(**given)
        return replace(options, logits_processor=(*processors, *options.logits_processor))
