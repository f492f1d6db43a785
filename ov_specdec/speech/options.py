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
"""Options of `GenerationOptions` that apply to speech too."""


@dataclass(frozen=True)
class TranscriptionOptions:
    """Options of `transcribe`, validated on construction; `OptionError` names an invalid value.

    Annotations hold the description of each option: see `About`.

    generation: the options of `GENERATION`, with the same meaning as for text.
    """

    language: Annotated[
        str | None,
        About("Spoken language, such as en or English.", unset="detected", metavar="L"),
    ] = None
    task: Annotated[
        Task, About("Transcribe the speech, or translate it to English.", field=None)
    ] = "transcribe"
    return_timestamps: Annotated[
        bool,
        About(
            "Return segments with times.",
            "For recordings over 30 s the model predicts times in any case.",
            flag=None,
            field=None,
        ),
    ] = False
    word_timestamps: Annotated[
        bool,
        About(
            "Return segments, and the times of their words.",
            "The first use compiles a second copy of the decoder.",
            field=None,
        ),
    ] = False
    initial_prompt: Annotated[
        str | None,
        About(
            "Use this text as the context of each window, for style.",
            metavar="TEXT",
            field="prompt",
        ),
    ] = None
    temperature: Annotated[
        float | Sequence[float],
        About("Try several in order, until an output is accepted.", low=0.0),
    ] = TEMPERATURES
    compression_ratio_threshold: Annotated[
        float | None,
        About(
            "Retry outputs with a higher zlib compression ratio.",
            above=0.0,
            metavar="X|none",
            field=None,
        ),
    ] = 2.4
    logprob_threshold: Annotated[
        float | None,
        About(
            "Retry outputs with a lower mean log-probability.",
            high=0.0,
            metavar="X|none",
            field=None,
        ),
    ] = -1.0
    no_speech_threshold: Annotated[
        float | None,
        About(
            "Drop an unlikely output if the probability of no speech is higher.",
            low=0.0,
            high=1.0,
            metavar="X|none",
            field=None,
        ),
    ] = 0.6
    condition_on_prev_tokens: Annotated[
        bool, About("Condition each window of 30 seconds on the text before it.", field=None)
    ] = True
    silence_threshold: Annotated[
        float | None,
        About(
            "Skip windows that are quieter everywhere, in dB.",
            "Full scale is 0 dB; loudness is measured over tenths of a second.",
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
            raise OptionError(Option("temperature", ()), " must be a number or several numbers")
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
        """Whether segments with times are requested; word times need them too."""
        return self.return_timestamps or self.word_timestamps

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The temperatures to try, in order."""
        return as_tuple(self.temperature)

    def at(
        self, temperature: float, processors: Sequence[LogitsProcessor] = ()
    ) -> GenerationOptions:
        """Generation options at this temperature. processors: applied before the user's own."""
        given = {"max_new_tokens": None, **self.generation, "temperature": temperature}
        if self.logprob_threshold is not None:
            given.update(logprobs=0, logprobs_mode="processed_logprobs")
        options = GenerationOptions(**given)
        return replace(options, logits_processor=(*processors, *options.logits_processor))
