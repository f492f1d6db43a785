"""Recordings in OpenAI's shapes: forms, parsed to an `AudioAsk`, and their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from ov_specdec.openai.answer import make_metrics
from ov_specdec.openai.body import Body, NeutralValues, Rules, read, with_options
from ov_specdec.openai.errors import NONE, ApiError, Json, encode_event, invalid
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import ResultBuilder
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import TranscriptionChunk, TranscriptionResult, collect, write
from ov_specdec.speech.settings import Task

AudioFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]
MEDIA_TYPES = {
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""Media types of the formats other than JSON."""

FILE = "file"


@dataclass(frozen=True)
class AudioAsk:
    """A parsed request, without the recording.

    options: keyword arguments of `SpeechPipeline.transcribe`. form: format of the answer. segments:
    whether verbose_json has them. stream: answer with events. user: for the log.
    """

    names: ClassVar[Mapping[str, str]] = NONE  # see `Ask`

    task: Task
    model: str | None
    options: dict[str, Any]
    form: AudioFormat = "json"
    segments: bool = True
    stream: bool = False
    user: str | None = None


def _describe_file(schema: dict[str, Any]) -> None:
    schema["properties"][FILE] = {"type": "string", "format": "binary"}
    schema["required"] = [FILE]


@with_options(GenerationOptions, ("seed", "num_assistant_tokens", "cache_salt"))
@with_options(TranscriptionOptions, ("initial_prompt",))
class TranslationForm(Body):
    """A recording to translate into English; its fields except for the file."""

    # A form has texts only.
    model_config = ConfigDict(strict=False, json_schema_extra=_describe_file)

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
            "return_timestamps": form in ("srt", "verbose_json", "vtt"),
        }
        given = {name: value for name, value in options.items() if value is not None}
        return AudioAsk(task, self.model, given, form, user=self.user)


@with_options(TranscriptionOptions, ("language",))
class TranscriptionForm(TranslationForm):
    """A recording to transcribe; its fields except for the file."""

    neutral_values: ClassVar[NeutralValues] = {
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


def make_transcription(ask: AudioAsk, result: TranscriptionResult) -> Json | str:
    """The body of an answer that is not streamed: a JSON object or a text."""
    if ask.form == "text":
        return write(result, "txt")
    if ask.form in ("srt", "vtt"):
        return write(result, ask.form)
    seconds = result.stats.audio_seconds
    usage = {"type": "duration", "seconds": round(seconds)}
    measured = {"usage": usage, **make_metrics([result.stats.generation])}
    if ask.form == "json":
        return {"text": result.text, **measured}
    body = {
        "task": ask.task,
        "language": result.language or "und",  # undetermined, in ISO 639: clients expect a text
        "duration": seconds,
        "text": result.text,
    }
    if ask.segments:
        body["segments"] = [
            {"id": number, **replace(each, words=()).as_dict()}
            for number, each in enumerate(result.segments)
        ]
    if ask.options.get("word_timestamps"):
        words = [word for each in result.segments for word in each.words]
        body["words"] = [{"word": w.text.strip(), "start": w.start, "end": w.end} for w in words]
    return {**body, **measured}


class TranscriptionAnswer:
    """Makes events of the chunks of a transcription, or an answer that is sent whole."""

    def __init__(self, ask: AudioAsk) -> None:
        self.ask = ask
        self.choices = [ResultBuilder()]
        self._chunks: list[TranscriptionChunk] = []

    def begin(self) -> list[bytes]:
        """No events come before the text."""
        return []

    def note(self, _: int, chunk: TranscriptionChunk) -> None:
        """Note the next chunk."""
        self._chunks.append(chunk)
        for part in chunk.chunks:
            self.choices[0].add(part)

    def add(self, index: int, chunk: TranscriptionChunk) -> list[bytes]:
        """Note a chunk; its events."""
        self.note(index, chunk)
        return [_event("delta", {"delta": chunk.text})] if chunk.text else []

    def end(self) -> list[bytes]:
        """The event after the last chunk: the whole text."""
        result = collect(self._chunks)
        stats = result.stats.generation
        usage = {
            "type": "tokens",
            "input_tokens": stats.prompt_tokens,
            "output_tokens": stats.generated_tokens,
            "total_tokens": stats.prompt_tokens + stats.generated_tokens,
        }
        return [_event("done", {"text": result.text, "usage": usage, **make_metrics([stats])})]

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream."""
        return encode_event(error.body())

    def whole(self) -> Json | str:
        """The body of an answer that is not streamed."""
        return make_transcription(self.ask, collect(self._chunks))


def _event(name: str, content: Json) -> bytes:
    kind = f"transcript.text.{name}"
    return encode_event({"type": kind, **content}, kind)
