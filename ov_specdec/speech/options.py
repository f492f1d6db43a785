"""The options of a transcription, under the names of transformers' `generate` for Whisper."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import Options, Several, Text, by_group, option, require_known
from ov_specdec.sampling.processors import LogitsProcessor
from ov_specdec.speech.settings import Task

FOR_SPEECH = (
    *("max_new_tokens", "top_k", "top_p", "min_p", "typical_p", "seed"),
    *("repetition_penalty", "logit_bias", "bad_words_ids", "suppress_tokens"),
    *("no_repeat_ngram_size", "logits_processor"),
    *by_group(GenerationOptions.model_fields)["Speculation"],
    "cache_salt",
)
"""Options of `GenerationOptions` that apply to speech too."""


def _as_language(name: str) -> str | None:
    return None if name.strip().lower() == "auto" else name


class TranscriptionOptions(Options):
    """Options of `transcribe`, validated on construction; `OptionError` names an invalid value.

    generation: the options of `FOR_SPEECH`, with the same meaning as for text.
    """

    language: Annotated[str, AfterValidator(_as_language)] | None = option(
        None,
        "Spoken language, such as en or English; auto: detect it.",
        unset="auto",
        metavar="L",
        group="Speech",
    )
    task: Task = option(
        "transcribe", "Transcribe the speech, or translate it to English.", field=None
    )
    return_timestamps: bool = option(
        False,
        "Return segments with times.",
        more="For recordings over 30 s the model predicts times in any case.",
        flag=None,
        field=None,
    )
    word_timestamps: bool = option(
        False,
        "Return segments, and the times of their words.",
        more="The first use compiles a second copy of the decoder.",
        field=None,
    )
    initial_prompt: Text | None = option(
        None,
        "Use this text as the context of each window, for style.",
        metavar="TEXT",
        field="prompt",
    )
    temperature: Annotated[Several[Annotated[float, Field(ge=0)]], Field(min_length=1)] = option(
        (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), "Try several in order, until an output is accepted."
    )
    compression_ratio_threshold: float | None = option(
        2.4,
        "Retry outputs with a higher zlib compression ratio.",
        gt=0,
        metavar="X|none",
        field=None,
    )
    logprob_threshold: float | None = option(
        -1.0, "Retry outputs with a lower mean log-probability.", le=0, metavar="X|none", field=None
    )
    no_speech_threshold: float | None = option(
        0.6,
        "Drop an unlikely output if the probability of no speech is higher.",
        ge=0,
        le=1,
        metavar="X|none",
        field=None,
    )
    condition_on_prev_tokens: bool = option(
        True, "Condition each window of 30 seconds on the text before it.", field=None
    )
    silence_threshold: float | None = option(
        -60.0,
        "Skip windows that are quieter everywhere, in dB.",
        more="Full scale is 0 dB; loudness is measured over tenths of a second.",
        le=0,
        metavar="X|none",
        field=None,
    )
    generation: Mapping[str, Any] = option({}, "", flag=None, field=None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for temperature in self.temperature:
            self.at(temperature)
        return self

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> "TranscriptionOptions":
        """Options by name; `OptionError` for a name that does not exist."""
        require_known(options, [*cls.model_fields, *FOR_SPEECH], "option")
        own = {name: value for name, value in options.items() if name in cls.model_fields}
        shared = {name: value for name, value in options.items() if name in FOR_SPEECH}
        return cls(**own, generation=shared)

    @property
    def gives_segments(self) -> bool:
        """Whether segments with times are requested; word times need them too."""
        return self.return_timestamps or self.word_timestamps

    def at(
        self, temperature: float, processors: Sequence[LogitsProcessor] = ()
    ) -> GenerationOptions:
        """Generation options at this temperature. processors: applied before the user's own."""
        given = {**self.generation, "temperature": temperature}
        if self.logprob_threshold is not None:
            given.update(logprobs=0, logprobs_mode="processed_logprobs")
        options = GenerationOptions(**given)
        return options.copy_with(logits_processor=(*processors, *options.logits_processor))
