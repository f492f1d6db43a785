"""The options of a transcription, under the names of transformers' `generate` for Whisper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from ov_specdec.checks import (
    make_plain,
    require_bool,
    require_choice,
    require_known,
    require_number,
    require_text,
    require_utf8,
)
from ov_specdec.description import as_tuple, describe
from ov_specdec.errors import Option, OptionError
from ov_specdec.kwargs import SpeechKwargs
from ov_specdec.options import GenerationOptions
from ov_specdec.sampling.processors import LogitsProcessor
from ov_specdec.speech.settings import Task

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""As in openai/whisper."""

GENERATION = tuple(name for name, each in describe(GenerationOptions).items() if each.about.speech)
"""Those of `GenerationOptions` that mean something for speech too."""


class TranscriptionKwargs(SpeechKwargs, total=False):
    """All options as keyword arguments, but for those that `transcribe` names itself."""

    temperature: float | Sequence[float]
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    no_speech_threshold: float | None
    condition_on_prev_tokens: bool
    silence_threshold: float | None


@dataclass(frozen=True)
class TranscriptionOptions:
    """Options of `transcribe`. Checked when made; `OptionError` names what is wrong.

    language: such as "en" or "English"; None has the model detect it in the first window that is
        not silent.
    task: "transcribe", or "translate" into English.
    return_timestamps: give segments with times. Beyond 30 s the model predicts them in any case.
    initial_prompt: text before the recording, for spelling and style; told before each window.
    temperature: one, or several that are tried one after the other until an output is accepted.
    compression_ratio_threshold: outputs that zlib shortens by more repeat themselves, and are tried
        again; None: none is.
    logprob_threshold: outputs whose mean log-probability is lower are tried again; None: none is.
    no_speech_threshold: such outputs are left out instead where the model gives this probability to
        there being no speech; None: none is.
    condition_on_prev_tokens: tell the model the text before each window.
    silence_threshold: windows in which no tenth of a second is as loud as this, in dB, are left out
        without a pass of the model; full scale is 0, so it is negative; None: none is.
    generation: others, which mean what they mean for text: those of `GENERATION`.
    """

    language: str | None = None
    task: Task = "transcribe"
    return_timestamps: bool = False
    initial_prompt: str | None = None
    temperature: float | Sequence[float] = TEMPERATURES
    compression_ratio_threshold: float | None = 2.4
    logprob_threshold: float | None = -1.0
    no_speech_threshold: float | None = 0.6
    condition_on_prev_tokens: bool = True
    silence_threshold: float | None = -60.0
    generation: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_plain(self)
        require_choice("task", self.task, get_args(Task))
        for name in ("return_timestamps", "condition_on_prev_tokens"):
            require_bool(name, getattr(self, name))
        for name in ("language", "initial_prompt"):
            if getattr(self, name) is not None:
                require_text(name, getattr(self, name))
                require_utf8(Option(name), getattr(self, name))
        object.__setattr__(self, "temperature", as_tuple(self.temperature))
        if not self.temperatures:
            raise OptionError(Option("temperature", ()), " must be a number, or several")
        for temperature in self.temperatures:
            require_number("temperature", temperature, low=0.0)
        if self.compression_ratio_threshold is not None:
            limit = self.compression_ratio_threshold
            require_number("compression_ratio_threshold", limit, above=0.0)
        if self.logprob_threshold is not None:
            require_number("logprob_threshold", self.logprob_threshold, high=0.0)
        if self.no_speech_threshold is not None:
            require_number("no_speech_threshold", self.no_speech_threshold, low=0.0, high=1.0)
        if self.silence_threshold is not None:
            require_number("silence_threshold", self.silence_threshold, high=0.0)
        for temperature in self.temperatures:
            self.at(temperature)

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> "TranscriptionOptions":
        """Options by name; `OptionError` for a name that does not exist."""
        own = [each.name for each in fields(cls) if each.name != "generation"]
        require_known(options, [*own, *GENERATION], "option")
        chosen = {name: value for name, value in options.items() if name in own}
        shared = {name: value for name, value in options.items() if name in GENERATION}
        return cls(**chosen, generation=shared)

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
