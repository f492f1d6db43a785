"""The result of a transcription: text, segments with times, and statistics; and its files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from ov_specdec.errors import OptionError
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import FinishReason, GenerationStats
from ov_specdec.speech.words import Word

Format = Literal["txt", "json", "srt", "vtt"]
WITH_WORDS: tuple[Format, ...] = ("json", "vtt")
"""Formats that support word times."""


@dataclass(frozen=True)
class Segment:
    """Text between two times, in seconds, rounded to hundredths.

    tokens: with timestamps. seek: the first frame of its window. temperature, avg_logprob,
    compression_ratio, no_speech_prob: of the output of that window; None if not computed. words:
    with word_timestamps; their texts join to that of the segment.
    """

    start: float
    end: float
    text: str
    tokens: tuple[int, ...] = ()
    seek: int = 0
    temperature: float = 0.0
    avg_logprob: float | None = None
    compression_ratio: float = 0.0
    no_speech_prob: float | None = None
    words: tuple[Word, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON; with words if any have times."""
        words = [{"word": word.text, "start": word.start, "end": word.end} for word in self.words]
        content = {**vars(self), "tokens": list(self.tokens), "words": words}
        if not words:
            del content["words"]
        return content


@dataclass
class SpeechStats:
    """The statistics of one transcription.

    audio_seconds: length of the recording. seconds: time of the transcription, without the reader's
    time between chunks. encoder_seconds: time in the encoders. num_windows: decoded windows.
    num_skipped: windows that were silent or held no speech. num_retries: retried outputs.
    generations: statistics of each output, rejected ones included, but without passes that detect
    language or silence.
    """

    audio_seconds: float
    seconds: float = 0.0
    encoder_seconds: float = 0.0
    num_windows: int = 0
    num_skipped: int = 0
    num_retries: int = 0
    generations: list[GenerationStats] = field(default_factory=list)

    @property
    def real_time_factor(self) -> float:
        """Processing time divided by the length of the recording."""
        return self.seconds / self.audio_seconds if self.audio_seconds else 0.0

    @property
    def encoder_share(self) -> float:
        """Fraction of the time in the encoders, 0 to 1."""
        return self.encoder_seconds / self.seconds if self.seconds else 0.0

    @property
    def generation(self) -> GenerationStats:
        """The sum over all outputs, in the form of text generation."""
        prompt_tokens = sum(each.prompt_tokens for each in self.generations)
        rounds = [round_ for each in self.generations for round_ in each.rounds]
        return GenerationStats(prompt_tokens, rounds)

    def as_dict(self) -> dict[str, Any]:
        """The figures above, for JSON; times in seconds."""
        own = (
            "audio_seconds seconds real_time_factor encoder_seconds encoder_share "
            "num_windows num_skipped num_retries"
        )
        decoding = self.generation.as_dict()
        decoding.pop("draft_lengths")
        decoding["decoding_seconds"] = decoding.pop("seconds")
        return {**{name: getattr(self, name) for name in own.split()}, **decoding}


@dataclass(frozen=True)
class TranscriptionChunk:
    """A final piece of a transcription.

    text: the new text. end: finished seconds of the recording. pieces: the tokens of the text by
    origin, each with its text; the last chunk has one that only ends them. segments: with
    return_timestamps. language, finish_reason and stats: on the last chunk only, which has no text.
    """

    text: str
    end: float
    pieces: tuple[Chunk, ...] = ()
    segments: tuple[Segment, ...] = ()
    language: str | None = None
    finish_reason: FinishReason | None = None
    stats: SpeechStats | None = None


@dataclass(frozen=True)
class TranscriptionResult:
    """A finished transcription.

    segments: with return_timestamps. language: a code, such as "en"; None if it was to be detected
    in a recording without speech.
    """

    text: str
    segments: tuple[Segment, ...]
    language: str | None
    stats: SpeechStats


def collect(chunks: Sequence[TranscriptionChunk]) -> TranscriptionResult:
    """Join all chunks of a stream to a transcription."""
    last = chunks[-1]
    if last.stats is None:
        raise OptionError("the stream ended before its last chunk: read it from the beginning")
    segments = tuple(segment for chunk in chunks for segment in chunk.segments)
    text = "".join(chunk.text for chunk in chunks)
    return TranscriptionResult(text, segments, last.language, last.stats)


def write(result: TranscriptionResult, form: Format) -> str:
    """A transcription in one of the formats, with a line break at its end.

    srt, vtt: SubRip and WebVTT, one subtitle for each segment; they need a result with segments.
    json has word times, and vtt has them as timestamps within a subtitle.
    """
    if form == "txt":
        return f"{result.text}\n"
    if form == "json":
        content = {
            "text": result.text,
            "language": result.language,
            "segments": [segment.as_dict() for segment in result.segments],
            "stats": result.stats.as_dict(),
        }
        return f"{json.dumps(content, ensure_ascii=False, indent=2)}\n"
    entries = ["WEBVTT\n\n"] if form == "vtt" else []
    for number, segment in enumerate(result.segments, start=1):
        # Players would parse an arrow in the text as times.
        text = segment.text.strip().replace("-->", "->") if form == "srt" else _vtt_text(segment)
        head, point = (f"{number}\n", ",") if form == "srt" else ("", ".")
        times = f"{clock(segment.start, point)} --> {clock(segment.end, point)}"
        entries.append(f"{head}{times}\n{text}\n\n")
    return "".join(entries)


def _vtt_text(segment: Segment) -> str:
    """A segment's text, with the start times of its words if known.

    Times must increase and lie within the subtitle; others are dropped.
    """
    if not segment.words:
        return escape(segment.text.strip(), quote=False)
    latest, text = segment.start, ""
    for word in segment.words:
        if latest < word.start < segment.end:
            latest = word.start
            text += f"<{clock(latest, '.')}>"
        text += escape(word.text, quote=False)
    return text.strip()


def clock(seconds: float, point: str) -> str:
    """A time in subtitle format: hours, minutes, seconds, and milliseconds after `point`."""
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"
