"""Answers and streams of /v1/audio/transcriptions and /v1/audio/translations."""

from dataclasses import replace
from typing import Literal

from ov_specdec.openai.audio import AudioAsk
from ov_specdec.openai.errors import ApiError
from ov_specdec.openai.part import Maybe, Part, encode_event
from ov_specdec.openai.usage import SpeculationMetrics, make_metrics
from ov_specdec.results.chunks import ResultBuilder
from ov_specdec.speech.formats import write
from ov_specdec.speech.segments import TranscriptionChunk, TranscriptionResult, collect
from ov_specdec.speech.settings import Task

MEDIA_TYPES = {
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""Media types of the formats other than JSON."""


UNDETERMINED = "und"
"""The code, in ISO 639, of the language of silence: clients expect a text."""


class AudioUsage(Part):
    """The length of a recording."""

    type: Literal["duration"] = "duration"
    seconds: int


class TranscriptionSegment(Part):
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


class TranscriptionWord(Part):
    """A word between two times, in seconds, without the space before it."""

    word: str
    start: float
    end: float


class VerboseTranscription(Part):
    """The answer as json; as verbose_json it has task, language, duration and segments too.

    words: if words are requested.
    """

    task: Maybe[Task] = None
    language: Maybe[str] = None
    duration: Maybe[float] = None
    text: str
    segments: Maybe[list[TranscriptionSegment]] = None
    words: Maybe[list[TranscriptionWord]] = None
    usage: AudioUsage
    metrics: Maybe[SpeculationMetrics] = None


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
    metrics: Maybe[SpeculationMetrics] = None


def make_transcription(ask: AudioAsk, result: TranscriptionResult) -> VerboseTranscription | str:
    """The body of an answer that is not streamed: a JSON object or a text."""
    if ask.form == "text":
        return write(result, "txt")
    if ask.form in ("srt", "vtt"):
        return write(result, ask.form)
    seconds, metrics = result.stats.audio_seconds, make_metrics([result.stats.generation])
    usage = AudioUsage(seconds=round(seconds))
    if ask.form == "json":
        return VerboseTranscription(text=result.text, usage=usage, metrics=metrics)
    found = [
        TranscriptionSegment(id=number, **replace(each, words=()).as_dict())
        for number, each in enumerate(result.segments)
    ]
    spoken = [
        TranscriptionWord(word=word.text.strip(), start=word.start, end=word.end)
        for each in result.segments
        for word in each.words
    ]
    return VerboseTranscription(
        task=ask.task,
        language=result.language or UNDETERMINED,
        duration=seconds,
        text=result.text,
        segments=found if ask.segments else None,
        words=spoken if ask.options.get("word_timestamps") else None,
        usage=usage,
        metrics=metrics,
    )


class StreamedTranscription:
    """Turns the chunks of a transcription into events, or into an answer that is sent whole."""

    def __init__(self, ask: AudioAsk) -> None:
        self._ask = ask
        self._chunks: list[TranscriptionChunk] = []
        self.choices = [ResultBuilder()]

    def begin(self) -> list[bytes]:
        """No events come before the text."""
        return []

    def note(self, _: int, chunk: TranscriptionChunk) -> None:
        """Note the next chunk."""
        self._chunks.append(chunk)
        for part in chunk.chunks:
            self.choices[0].add(part)

    def add(self, index: int, chunk: TranscriptionChunk) -> list[bytes]:
        """The events of the next chunk; the last one ends the text."""
        self.note(index, chunk)
        delta = TextDelta(delta=chunk.text)
        events = [encode_event(delta, delta.type)] if chunk.text else []
        if chunk.stats is None:
            return events
        stats = chunk.stats.generation
        usage = TokenUsage(
            input_tokens=stats.prompt_tokens,
            output_tokens=stats.generated_tokens,
            total_tokens=stats.prompt_tokens + stats.generated_tokens,
        )
        text, metrics = collect(self._chunks).text, make_metrics([stats])
        done = TextDone(text=text, usage=usage, metrics=metrics)
        return [*events, encode_event(done, done.type)]

    def end(self) -> list[bytes]:
        """No events come after the text."""
        return []

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream."""
        return error.event()

    def whole(self) -> VerboseTranscription | str:
        """The body of an answer that is not streamed."""
        return make_transcription(self._ask, collect(self._chunks))
