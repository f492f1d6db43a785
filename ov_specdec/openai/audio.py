"""Forms of /v1/audio/transcriptions and /v1/audio/translations, parsed to an `AudioAsk`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from ov_specdec.description import describe
from ov_specdec.openai.body import Body, UnknownNames, read
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.fields import Only, with_options
from ov_specdec.options import GenerationOptions
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


def _add_file(schema: dict[str, Any]) -> None:
    schema["properties"][FILE] = {"type": "string", "format": "binary"}
    schema["required"] = [FILE]


SPEECH = describe(TranscriptionOptions)


@with_options([*(describe(GenerationOptions)[name] for name in OPTIONS), SPEECH["initial_prompt"]])
class TranslationForm(Body):
    """Fields of /v1/audio/translations, except for the file."""

    model_config = ConfigDict(strict=False, json_schema_extra=_add_file)  # a form has texts only

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    response_format: AudioFormat | None = None
    user: str | None = None

    def ask(self) -> AudioAsk:
        """The parsed request."""
        return self._ask("translate")

    def _ask(self, task: Task, *, stream: bool = False) -> AudioAsk:
        """Parse the common fields of both endpoints."""
        form = self.response_format or "json"
        if stream and form not in ("json", "text"):
            raise invalid("stream", f"stream=true does not go with response_format={form}")
        options = {
            **self.options,
            "task": task,
            # As in OpenAI's interface, 0 means temperature fallback.
            "temperature": self.temperature or None,
            "return_timestamps": form in TIMED,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return AudioAsk(task, self.model, given, form, stream=stream, user=self.user)


@with_options([SPEECH["language"]])
class TranscriptionForm(TranslationForm):
    """Fields of /v1/audio/transcriptions, except for the file."""

    stream: bool | None = None
    timestamp_granularities: list[Literal["segment", "word"]] | None = Field(
        None, alias="timestamp_granularities[]"
    )
    # Not supported here.
    chunking_strategy: Annotated[Any, Only("auto")] = None
    include: Annotated[Any, Only()] = Field(None, alias="include[]")
    known_speaker_names: Annotated[Any, Only()] = Field(None, alias="known_speaker_names[]")
    known_speaker_references: Annotated[Any, Only()] = Field(
        None, alias="known_speaker_references[]"
    )

    def ask(self) -> AudioAsk:
        """The parsed request."""
        ask = self._ask("transcribe", stream=bool(self.stream))
        if not self.timestamp_granularities:
            return ask
        if ask.form != "verbose_json":
            raise invalid(
                "timestamp_granularities",
                "timestamp_granularities needs response_format=verbose_json",
            )
        options = {**ask.options, "word_timestamps": "word" in self.timestamp_granularities}
        return replace(ask, options=options, segments="segment" in self.timestamp_granularities)


def read_form(
    kind: type[TranslationForm],
    texts: Mapping[str, Sequence[str]],
    unknown: UnknownNames | None = None,
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
    return read(kind, values, unknown).ask()
