"""What a transcription is: segments with their times, the text, and how it came about."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ov_specdec.chunks import Chunk
from ov_specdec.errors import OptionError
from ov_specdec.speech.words import Word
from ov_specdec.stats import FinishReason, GenerationStats


@dataclass(frozen=True)
class Segment:
    """Text between two times, in seconds, rounded to hundredths.

    tokens: with timestamps. seek: the frame that its window begins at. temperature, avg_logprob,
    compression_ratio, no_speech_prob: of the output of that window; None where nothing depended on
    it. words: with word_timestamps; their texts together are that of the segment.
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
        """For JSON; words are there where any have times."""
        content = {**vars(self), "tokens": list(self.tokens)}
        content.pop("words")
        if self.words:
            content["words"] = [word.as_dict() for word in self.words]
        return content


@dataclass
class SpeechStats:
    """The record of one transcription.

    audio_seconds: length of the recording. seconds: that transcribing took, without what a reader
    of the stream does between chunks; encoder_seconds: those of them in the encoders. num_windows:
    that were decoded; num_skipped: those that were silent or held no speech; num_retries: outputs
    that were tried again. generations: of each output, the record that text has too; those that
    were not taken are among them, the passes that detect language and silence are not.
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
        """Seconds that a second of the recording took."""
        return self.seconds / self.audio_seconds if self.audio_seconds else 0.0

    @property
    def encoder_share(self) -> float:
        """The part of the time that the encoders took, 0 to 1."""
        return self.encoder_seconds / self.seconds if self.seconds else 0.0

    @property
    def generation(self) -> GenerationStats:
        """All outputs as one record, whose figures are those of text."""
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
    """A piece of a transcription, which will not change any more.

    text: what is new. end: seconds of the recording that are done. pieces: the tokens of the text
    by origin; they have their texts too, the first of all with the space that it begins with.
    segments: with return_timestamps. language, finish_reason and stats: on the last chunk only,
    which has no text.
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

    segments: with return_timestamps. language: a code, such as "en"; None where it was to be
    detected, and nothing was heard that it could be detected in.
    """

    text: str
    segments: tuple[Segment, ...]
    language: str | None
    stats: SpeechStats


def collect(chunks: Sequence[TranscriptionChunk]) -> TranscriptionResult:
    """The transcription that the chunks of a stream, up to the last one, amount to."""
    last = chunks[-1]
    if last.stats is None:
        raise OptionError("the stream ended before its last chunk: read it from the beginning")
    segments = tuple(segment for chunk in chunks for segment in chunk.segments)
    text = "".join(chunk.text for chunk in chunks)
    return TranscriptionResult(text, segments, last.language, last.stats)
