"""/v1/audio/transcriptions and /v1/audio/translations: from OpenAI's forms to ours, and back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ov_specdec.openai.answers import make_metrics
from ov_specdec.openai.errors import ApiError, invalid
from ov_specdec.openai.events import encode_event
from ov_specdec.openai.fields import Fields
from ov_specdec.openai.requests import read_draft_length
from ov_specdec.speech.formats import write
from ov_specdec.speech.segments import Segment, TranscriptionChunk, TranscriptionResult
from ov_specdec.speech.settings import Task

AudioFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]
FORMATS: tuple[AudioFormat, ...] = get_args(AudioFormat)
TIMED = ("srt", "verbose_json", "vtt")
"""Formats that show segments with their times."""

MEDIA_TYPES = {
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""Of the formats that are no JSON."""

NOT_SUPPORTED = {
    "chunking_strategy": ("auto",),
    "include": (),
    "known_speaker_names": (),
    "known_speaker_references": (),
}
"""Fields of transcriptions without a counterpart here, and their values that change nothing."""

FILE = "file"


@dataclass(frozen=True)
class AudioAsk:
    """A request as read, without the recording.

    options: keyword arguments of `SpeechPipeline.transcribe`. form: of the answer. stream: answer
    with events. user: for the log.
    """

    task: Task
    model: str | None
    options: dict[str, Any]
    form: AudioFormat = "json"
    stream: bool = False
    user: str | None = field(default=None)


def read_transcription(form: Mapping[str, Sequence[str]]) -> AudioAsk:
    """The fields of /v1/audio/transcriptions; `ApiError` for what cannot be honoured.

    form: the texts of each field, in the order in which they came.
    """
    fields = _fields(form)
    language, stream = fields.text("language"), fields.flag("stream")
    granularities = fields.get("timestamp_granularities") or []
    ask = _read(fields, "transcribe", stream=stream, language=language)
    for value in granularities:
        if value != "segment":
            raise invalid(
                "timestamp_granularities",
                f"timestamp_granularities={value!r} is not supported: only 'segment' is",
                "unsupported_value",
            )
    if granularities and ask.form != "verbose_json":
        raise invalid(
            "timestamp_granularities",
            "timestamp_granularities needs response_format=verbose_json",
        )
    fields.neutral(**NOT_SUPPORTED)
    fields.finish()
    return ask


def read_translation(form: Mapping[str, Sequence[str]]) -> AudioAsk:
    """The same for /v1/audio/translations, which translates into English."""
    fields = _fields(form)
    ask = _read(fields, "translate")
    fields.finish()
    return ask


def _read(
    fields: Fields, task: Task, *, stream: bool = False, language: str | None = None
) -> AudioAsk:
    """What both endpoints read in the same way."""
    form = fields.text("response_format") or "json"
    if form not in FORMATS:
        raise invalid(
            "response_format",
            f"response_format={form!r} is not one of {', '.join(FORMATS)}",
            "unsupported_value",
        )
    if stream and form not in ("json", "text"):
        raise invalid("stream", f"stream=true does not go with response_format={form}")
    # 0 is what leaves the temperature to the thresholds, as OpenAI has it.
    temperature = fields.number("temperature", low=0.0, high=1.0) or None
    options = {
        "task": task,
        "language": language,
        "initial_prompt": fields.text("prompt"),
        "temperature": temperature,
        "return_timestamps": form in TIMED,
        "seed": fields.integer("seed", low=0),
        "num_assistant_tokens": read_draft_length(fields),
        "cache_salt": fields.text("cache_salt"),
    }
    given = {name: value for name, value in options.items() if value is not None}
    return AudioAsk(task, fields.text("model"), given, form, stream, fields.text("user"))


def _fields(form: Mapping[str, Sequence[str]]) -> Fields:
    """A form's texts as the values that they stand for; lists are written with [] at the end."""
    values: dict[str, Any] = {}
    for key, texts in form.items():
        name, is_list = key.removesuffix("[]"), key.endswith("[]")
        if is_list or name == "timestamp_granularities":
            values[name] = list(texts)
        elif len(texts) > 1:
            raise invalid(name, f"{name} was given {len(texts)} times: give it once")
        elif texts[0]:  # an empty one is as good as none
            values[name] = _PARSERS.get(name, str)(texts[0])
    return Fields(values)


def _number(kind: type) -> Callable[[str], Any]:
    """From a text to a number; what is none stays a text, which is refused by name."""

    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            return text

    return parse


def _flag(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "temperature": _number(float),
    "seed": _number(int),
    "num_assistant_tokens": _number(int),
    "stream": _flag,
}


def make_transcription(ask: AudioAsk, result: TranscriptionResult) -> dict[str, Any] | str:
    """The body of an answer that is not streamed: an object of JSON, or a text."""
    if ask.form == "text":
        return write(result, "txt")
    if ask.form in ("srt", "vtt"):
        return write(result, ask.form)
    usage = {"type": "duration", "seconds": round(result.stats.audio_seconds)}
    metrics = make_metrics([result.stats.generation])
    if ask.form == "json":
        return {"text": result.text, "usage": usage, **metrics}
    return {
        "task": ask.task,
        "language": result.language,
        "duration": result.stats.audio_seconds,
        "text": result.text,
        "segments": [_segment(number, each) for number, each in enumerate(result.segments)],
        "usage": usage,
        **metrics,
    }


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {"id": number, **segment.as_dict()}


class StreamedTranscription:
    """Events of a transcription, as its chunks come."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, chunk: TranscriptionChunk) -> bytes:
        """A chunk; the last one ends the text."""
        event = b""
        if chunk.text:
            self._text += chunk.text
            event = _event({"type": "transcript.text.delta", "delta": chunk.text})
        if chunk.stats is not None:
            stats = chunk.stats.generation
            counts = stats.prompt_tokens, stats.generated_tokens
            usage = {
                "type": "tokens",
                "input_tokens": counts[0],
                "output_tokens": counts[1],
                "total_tokens": sum(counts),
            }
            done = {"type": "transcript.text.done", "text": self._text, "usage": usage}
            event += _event({**done, **make_metrics([stats])})
        return event

    def fail(self, error: ApiError) -> bytes:
        """What ends a stream that cannot go on."""
        return encode_event(error.body())


def _event(content: dict[str, Any]) -> bytes:
    return encode_event(content, content["type"])
