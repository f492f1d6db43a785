"""Forms of /v1/audio/transcriptions and /v1/audio/translations, parsed to an `AudioAsk`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from ov_specdec.openai.body import Body, Rules, Unsupported, describe_unsupported, read
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.fields import with_options
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.settings import Task

AudioFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]
TIMED = ("srt", "verbose_json", "vtt")
"""Formats with segments and their times."""

FILE = "file"

OPTIONS = ("seed", "num_assistant_tokens", "cache_salt")
"""Generation options that are fields of forms."""


@dataclass(frozen=True)
class AudioAsk:
    """A parsed request, without the recording.

    options: keyword arguments of `SpeechPipeline.transcribe`. form: format of the answer. segments:
    whether verbose_json has them. stream: answer with events. user: for the log.
    """

    task: Task
    model: str | None
    options: dict[str, Any]
    form: AudioFormat = "json"
    segments: bool = True
    stream: bool = False
    user: str | None = field(default=None)


def _describe(schema: dict[str, Any], form: type[Body]) -> None:
    describe_unsupported(schema, form)
    schema["properties"][FILE] = {"type": "string", "format": "binary"}
    schema["required"] = [FILE]


@with_options(GenerationOptions, OPTIONS)
@with_options(TranscriptionOptions, ("initial_prompt",))
class TranslationForm(Body):
    """Fields of /v1/audio/translations, except for the file."""

    model_config = ConfigDict(strict=False, json_schema_extra=_describe)  # a form has texts only

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    response_format: AudioFormat | None = None
    user: str | None = None

    def ask(self, task: Task = "translate") -> AudioAsk:
        """The parsed request."""
        form = self.response_format or "json"
        options = {
            **self.options,
            "task": task,
            # As in OpenAI's interface, 0 means temperature fallback.
            "temperature": self.temperature or None,
            "return_timestamps": form in TIMED,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return AudioAsk(task, self.model, given, form, user=self.user)


@with_options(TranscriptionOptions, ("language",))
class TranscriptionForm(TranslationForm):
    """Fields of /v1/audio/transcriptions, except for the file."""

    unsupported: ClassVar[Unsupported] = {
        "chunking_strategy": ("auto",),
        "include[]": (),
        "known_speaker_names[]": (),
        "known_speaker_references[]": (),
    }

    stream: bool | None = None
    timestamp_granularities: list[Literal["segment", "word"]] | None = Field(
        None, alias="timestamp_granularities[]"
    )

    def ask(self, task: Task = "transcribe") -> AudioAsk:
        """The parsed request."""
        ask = replace(super().ask(task), stream=bool(self.stream))
        if ask.stream and ask.form not in ("json", "text"):
            raise invalid("stream", f"stream=true does not go with response_format={ask.form}")
        wanted = self.timestamp_granularities
        if not wanted:
            return ask
        if ask.form != "verbose_json":
            name = "timestamp_granularities"
            raise invalid(name, f"{name} needs response_format=verbose_json")
        options = {**ask.options, "word_timestamps": "word" in wanted}
        return replace(ask, options=options, segments="segment" in wanted)


def read_form(
    kind: type[TranslationForm],
    texts: Mapping[str, Sequence[str]],
    rules: Rules | None = None,
) -> AudioAsk:
    """Parse a form; `ApiError` for invalid or unsupported fields.

    texts: of each field, in order of arrival. Names of lists end in [].
    """
    values: dict[str, Any] = {}
    for name, given in texts.items():
        listed = f"{name}[]" if name == "timestamp_granularities" else name
        if listed.endswith("[]"):
            values[listed] = list(given)
        elif len(given) > 1:
            raise invalid(name, f"{name} was given {len(given)} times: give it once")
        elif given[0]:  # an empty one counts as missing
            values[name] = given[0]
    return read(kind, values, rules).ask()
