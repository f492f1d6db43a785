"""Recordings in OpenAI's shapes: forms, and their answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ov_specdec.api.answer import Answer, encode_event, make_metrics
from ov_specdec.api.body import Form, NeutralValues, UnknownFields, with_options
from ov_specdec.api.errors import ApiError, Json, invalid
from ov_specdec.openai.completions import error_body
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import TranscriptionChunk, collect, write
from ov_specdec.speech.settings import Task

MEDIA_TYPES = {
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""Media types of the formats other than JSON."""


@with_options(GenerationOptions, ("seed", "num_assistant_tokens", "cache_salt"))
@with_options(TranscriptionOptions, ("initial_prompt",))
class TranslationForm(Form):
    """A recording to translate into English."""

    task: ClassVar[Task] = "translate"

    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] | None = None
    user: str | None = None

    @property
    def user_name(self) -> str | None:
        """See `Body`."""
        return self.user

    @property
    def options(self) -> dict[str, Any]:
        """See `Form`."""
        options = {
            **self.given_options,
            "task": self.task,
            # As in OpenAI's interface, 0 means temperature fallback.
            "temperature": self.temperature or None,
            "return_timestamps": self.response_format in ("srt", "verbose_json", "vtt"),
        }
        return {name: value for name, value in options.items() if value is not None}


@with_options(TranscriptionOptions, ("language",))
class TranscriptionForm(TranslationForm):
    """A recording to transcribe."""

    task: ClassVar[Task] = "transcribe"
    lists: ClassVar[tuple[str, ...]] = ("timestamp_granularities",)
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

    def check(self, unknown: UnknownFields, where: str = "") -> None:
        """See `Body`."""
        super().check(unknown, where)
        text_format, name = self.response_format, "timestamp_granularities"
        if self.stream and text_format not in (None, "json", "text"):
            raise invalid("stream", f"stream=true does not go with response_format={text_format}")
        if self.timestamp_granularities and text_format != "verbose_json":
            raise invalid(name, f"{name} needs response_format=verbose_json")

    @property
    def options(self) -> dict[str, Any]:
        """See `Form`."""
        has_words = "word" in (self.timestamp_granularities or ())
        return {**super().options, "word_timestamps": has_words}


class TranscriptionAnswer(Answer[TranslationForm]):
    """The answer to a recording, streamed or whole."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._granularities: Sequence[str] = ("segment",)
        self._chunks: list[TranscriptionChunk] = []
        if isinstance(self.request, TranscriptionForm):
            self._granularities = self.request.timestamp_granularities or self._granularities

    @property
    def media_type(self) -> str:
        """See `Answer`."""
        return MEDIA_TYPES.get(str(self.request.response_format), super().media_type)

    def note(self, _: int, chunk: TranscriptionChunk) -> None:
        """Note the next chunk."""
        self._chunks.append(chunk)
        for part in chunk.pieces:
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
        return encode_event(error_body(error))

    def whole(self) -> Json | str:
        """The body of an answer that is not streamed: a JSON object, or a text."""
        result, text_format = collect(self._chunks), self.request.response_format or "json"
        if text_format in ("text", "srt", "vtt"):
            return write(result, "txt" if text_format == "text" else text_format)
        seconds = result.stats.audio_seconds
        usage = {"type": "duration", "seconds": round(seconds)}
        measured = {"usage": usage, **make_metrics([result.stats.generation])}
        if text_format == "json":
            return {"text": result.text, **measured}
        body: Json = {
            "task": self.request.task,
            "language": result.language or "und",  # undetermined, in ISO 639: clients expect a text
            "duration": seconds,
            "text": result.text,
        }
        if "segment" in self._granularities:
            body["segments"] = [
                {"id": number, **replace(each, words=()).as_dict()}
                for number, each in enumerate(result.segments)
            ]
        if "word" in self._granularities:
            words = [word for each in result.segments for word in each.words]
            times = [{"word": w.text.strip(), "start": w.start, "end": w.end} for w in words]
            body["words"] = times
        return {**body, **measured}


def _event(name: str, content: Json) -> bytes:
    kind = f"transcript.text.{name}"
    return encode_event({"type": kind, **content}, kind)
