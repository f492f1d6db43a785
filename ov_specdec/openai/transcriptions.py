"""Answers and streams of /v1/audio/transcriptions and /v1/audio/translations."""

from dataclasses import replace
from typing import Literal

from ov_specdec.openai.audio import AudioAsk
from ov_specdec.openai.errors import ApiError
from ov_specdec.openai.events import encode_event
from ov_specdec.openai.part import Maybe, Part
from ov_specdec.openai.usage import Metrics, make_metrics
from ov_specdec.speech import segments, words
from ov_specdec.speech.formats import write
from ov_specdec.speech.segments import TranscriptionChunk, TranscriptionResult
from ov_specdec.speech.settings import Task
from ov_specdec.stats import GenerationStats

MEDIA_TYPES = {
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""Media types of the formats other than JSON."""


class AudioUsage(Part):
    """The length of a recording."""

    type: Literal["duration"] = "duration"
    seconds: int


class Segment(Part):
    """Text between two times, in seconds. seek: the frame that its window begins at."""

    id: int
    start: float
    end: float
    text: str
    tokens: list[int]
    seek: int
    temperature: float
    avg_logprob: float | None
    compression_ratio: float
    no_speech_prob: float | None


class Word(Part):
    """A word between two times, in seconds, without the space before it."""

    word: str
    start: float
    end: float


class Transcription(Part):
    """The answer as json; as verbose_json it has task, language, duration and segments too.

    words: if words are requested.
    """

    task: Maybe[Task] = None
    language: Maybe[str] = None
    duration: Maybe[float] = None
    text: str
    segments: Maybe[list[Segment]] = None
    words: Maybe[list[Word]] = None
    usage: AudioUsage
    metrics: Maybe[Metrics] = None


class TextDelta(Part):
    """New text of a transcription."""

    type: Literal["transcript.text.delta"] = "transcript.text.delta"
    delta: str


class TokenUsage(Part):
    """Counts of tokens of a transcription."""

    type: Literal["tokens"] = "tokens"
    input_tokens: int
    output_tokens: int
    total_tokens: int


class TextDone(Part):
    """The complete transcription."""

    type: Literal["transcript.text.done"] = "transcript.text.done"
    text: str
    usage: TokenUsage
    metrics: Maybe[Metrics] = None


def make_transcription(ask: AudioAsk, result: TranscriptionResult) -> Transcription | str:
    """The body of an answer that is not streamed: a JSON object or a text."""
    if ask.form == "text":
        return write(result, "txt")
    if ask.form in ("srt", "vtt"):
        return write(result, ask.form)
    seconds, metrics = result.stats.audio_seconds, make_metrics([result.stats.generation])
    usage = AudioUsage(seconds=round(seconds))
    if ask.form == "json":
        return Transcription(text=result.text, usage=usage, metrics=metrics)
    has_words = ask.options.get("word_timestamps")
    spoken = [_word(word) for each in result.segments for word in each.words]
    return Transcription(
        task=ask.task,
        language=result.language,
        duration=seconds,
        text=result.text,
        segments=[_segment(*each) for each in enumerate(result.segments)] if ask.segments else None,
        words=spoken if has_words else None,
        usage=usage,
        metrics=metrics,
    )


def _segment(number: int, segment: segments.Segment) -> Segment:
    return Segment(id=number, **replace(segment, words=()).as_dict())


def _word(word: words.Word) -> Word:
    return Word(word=word.text.strip(), start=word.start, end=word.end)


class StreamedTranscription:
    """Turns the chunks of a transcription into events."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, chunk: TranscriptionChunk) -> bytes:
        """Add a chunk; the last one ends the text."""
        event = b""
        if chunk.text:
            self._text += chunk.text
            event = _event(TextDelta(delta=chunk.text))
        if chunk.stats is not None:
            event += _event(self._done(chunk.stats.generation))
        return event

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream."""
        return encode_event(error.body())

    def _done(self, stats: GenerationStats) -> TextDone:
        usage = TokenUsage(
            input_tokens=stats.prompt_tokens,
            output_tokens=stats.generated_tokens,
            total_tokens=stats.prompt_tokens + stats.generated_tokens,
        )
        return TextDone(text=self._text, usage=usage, metrics=make_metrics([stats]))


def _event(content: TextDelta | TextDone) -> bytes:
    return encode_event(content, content.type)
