"""Transcribes one recording, window by window."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, inf
from statistics import fmean

from ov_specdec.engine.sequence import Cancelled
from ov_specdec.errors import CLOSED, Option, OptionError, SessionError
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import Chunk, ChunkStream
from ov_specdec.results.stats import FinishReason, Stopwatch
from ov_specdec.speech.alignment import token_times
from ov_specdec.speech.audio import Samples
from ov_specdec.speech.fallback import Attempt, compression_ratio
from ov_specdec.speech.features import Features
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.rules import AllowOnly, whisper_processors
from ov_specdec.speech.segments import Segment, SpeechStats, TranscriptionChunk
from ov_specdec.speech.whisper import Whisper
from ov_specdec.speech.windows import (
    Split,
    TimedTokens,
    Window,
    is_silent,
    previous_text,
    split,
    whole,
    window_at,
)
from ov_specdec.speech.words import SpokenToken, Word, timed_words
from ov_specdec.text.detokenizer import IncrementalDetokenizer


@dataclass
class Transcription:
    """The transcription of one recording, with options checked against the model.

    samples: mono, at the rate of the model's extractor. Raises `OptionError` for a language or a
    task that the model does not support, and for an initial prompt that contains special tokens.
    """

    model: Whisper
    samples: Samples
    options: TranscriptionOptions
    stats: SpeechStats = field(init=False)
    _language: int | None = field(default=None, init=False)
    _knows_language: bool = field(default=False, init=False)
    _initial: list[int] = field(default_factory=list, init=False)
    _previous: list[Sequence[int]] = field(default_factory=list, init=False)
    """Tokens of the segments so far."""
    _is_trusted: bool = field(default=True, init=False)
    _has_text: bool = field(default=False, init=False)
    _is_cancelled: bool = field(default=False, init=False)
    _decoding: GenerationStream | None = field(default=None, init=False)
    """The current output, or the last one."""

    def __post_init__(self) -> None:
        settings, options = self.model.settings, self.options
        self.stats = SpeechStats(len(self.samples) / self.model.extractor.sampling_rate)
        settings.check_task(options.task)
        if options.language is not None:
            self._language = settings.language_id(options.language)
        self._knows_language = options.language is not None or not settings.is_multilingual
        if options.initial_prompt:
            self._initial = self.model.encode_text(f" {options.initial_prompt.strip()}")
        if marks := [token for token in self._initial if not settings.is_text(token)]:
            raise OptionError(
                Option("initial_prompt", options.initial_prompt),
                f" contains the special token {marks[0]}: leave it out",
            )

    @property
    def num_frames(self) -> int:
        """Frames of the recording, without padding."""
        return max(1, len(self.samples) // self.model.extractor.hop_length)

    @property
    def predicts_timestamps(self) -> bool:
        """Whether the model predicts timestamps, which more than one window requires."""
        return self.options.gives_segments or self.num_frames > self.model.extractor.num_frames

    def chunks(self) -> Generator[TranscriptionChunk, None, None]:
        """A chunk for each window, then one that ends the transcription."""
        start = 0
        while start < self.num_frames and not self._is_cancelled:
            try:
                start, chunk = self._window_from(start)
            except Cancelled:
                break
            yield chunk
        code = self.model.settings.language_code(self._language) if self._knows_language else None
        reason: FinishReason = "cancelled" if self._is_cancelled else "stop"
        yield TranscriptionChunk("", self._seconds(start), (), (), code, reason, self.stats)

    def cancel(self) -> None:
        """End it within one pass of a model. From any thread."""
        self._is_cancelled = True
        if self._decoding is not None:
            self._decoding.cancel()

    def _window_from(self, start: int) -> tuple[int, TranscriptionChunk]:
        """The start of the next window, and the chunk of this one. Counts the time."""
        watch, encoded = Stopwatch(), self.model.encoder_seconds
        window = window_at(start, self.num_frames, self.model.extractor)
        try:
            return self._skip(window) if self._is_silent(window) else self._transcribe(window)
        finally:
            self.stats.seconds += watch.total()
            self.stats.encoder_seconds += self.model.encoder_seconds - encoded

    @cached_property
    def _filled(self) -> Samples:
        return self.model.extractor.fill_up(self.samples)

    @cached_property
    def _loudest(self) -> float:
        """The greatest log power of the recording; raises `Cancelled`."""
        greatest = -inf
        for each in self.model.extractor.loudness(self._filled):
            greatest = max(greatest, each)
            if self._is_cancelled:
                raise Cancelled
        return greatest

    def _is_silent(self, window: Window) -> bool:
        extractor, threshold = self.model.extractor, self.options.silence_threshold
        samples = window.samples(self.samples, extractor)
        return threshold is not None and is_silent(samples, extractor, threshold)

    def _skip(self, window: Window) -> tuple[int, TranscriptionChunk]:
        """Skip a window. Returns the start of the next one, and an empty chunk."""
        self.stats.num_skipped += 1
        end = window.start + window.length
        return end, TranscriptionChunk("", self._seconds(end))

    def _transcribe(self, window: Window) -> tuple[int, TranscriptionChunk]:
        """Decode a window. Returns the start of the next one, and the chunk of this one."""
        features = window.features(self._filled, self.model.extractor, self._loudest)
        if not self._knows_language:
            self._language, self._knows_language = self._detect_language(features), True
        self.stats.num_windows += 1
        prompt = self._prompt()
        attempt, pieces = self._first_accepted(features, prompt)
        self._is_trusted = attempt.is_trusted
        if attempt.has_no_speech(self.options):
            return self._skip(window)
        tokens = [t for t in attempt.tokens if t != self.model.settings.eos_token_id]
        done = whole(tokens, window, self.model.extractor)
        if self.predicts_timestamps:
            done = split(tokens, window, self.model.settings, self.model.extractor)
        self._previous += [timed.tokens for timed in done.segments]
        end = window.start + done.num_frames
        num_kept = sum(len(timed.tokens) for timed in done.segments)
        pieces = self._with_text(_first_tokens(pieces, num_kept))
        text = "".join(piece.text for piece in pieces)
        if not self._has_text:  # Whisper's text begins with a space
            text = text.lstrip()
        self._has_text = self._has_text or bool(text)
        segments: tuple[Segment, ...] = ()
        if self.options.gives_segments:
            times_words = self.options.word_timestamps and tokens
            spoken = self._spoken(tokens, window, features, prompt) if times_words else []
            segments = self._segments(done, window, attempt, self._words(done, spoken))
        return end, TranscriptionChunk(text, self._seconds(end), tuple(pieces), segments)

    def _segments(
        self, done: Split, window: Window, attempt: Attempt, words: Sequence[tuple[Word, ...]]
    ) -> tuple[Segment, ...]:
        """The segments that hold text. words: of each segment of the window."""
        return tuple(
            Segment(
                *self._times(self._seconds(window.start), timed),
                self.model.decode_text(self._text_tokens(timed.tokens)),
                timed.tokens,
                window.start,
                attempt.temperature,
                attempt.avg_logprob,
                attempt.compression_ratio,
                attempt.no_speech_prob,
                own,
            )
            for timed, own in zip(done.segments, words, strict=True)
            if self._text_tokens(timed.tokens)
        )

    def _spoken(
        self, tokens: Sequence[int], window: Window, features: Features, prompt: list[int]
    ) -> list[SpokenToken]:
        """The tokens of a window's output with their times."""
        salt = self.options.generation.get("cache_salt")
        weights = self.model.weights(features, [*prompt, *tokens], salt)
        heard = weights[:, len(prompt) :, : max(window.length // 2, 1)]
        times = token_times(heard, self.model.settings.median_filter_width)
        start = self._seconds(window.start)
        ends = [self._time(start + seconds) for seconds in times]
        return list(map(SpokenToken, tokens, [self._time(start), *ends], ends))

    def _words(self, done: Split, spoken: Sequence[SpokenToken]) -> list[tuple[Word, ...]]:
        """The words of each segment of a window. spoken: its tokens, or none."""
        code = self.model.settings.language_code(self._language)
        written = "en" if self.options.task == "translate" else code
        first, words = 0, []
        for timed in done.segments:
            own = spoken[first : first + len(timed.tokens)]
            text = [each for each in own if self.model.settings.is_text(each.token)]
            words.append(tuple(timed_words(text, self.model.decode_text, written)))
            first += len(timed.tokens)
        return words

    def _times(self, start: float, timed: TimedTokens) -> tuple[float, float]:
        """The start and end of a segment, at least a hundredth apart even past the recording."""
        end = max(self._time(start + timed.end), 0.01)
        return min(self._time(start + timed.start), round(end - 0.01, 2)), end

    def _time(self, seconds: float) -> float:
        """A time within the recording, rounded for segments and words."""
        return round(min(seconds, self.stats.audio_seconds), 2)

    def _prompt(self) -> list[int]:
        """Previous text, if any, and the start tokens."""
        settings, options = self.model.settings, self.options
        is_conditioned = options.condition_on_prev_tokens and self._is_trusted
        previous = previous_text(self._previous if is_conditioned else [], self._initial, settings)
        start = settings.start_tokens(self._language, options.task, self.predicts_timestamps)
        return [settings.prev_sot_token_id, *previous, *start] if previous else start

    def _first_accepted(self, features: Features, prompt: list[int]) -> tuple[Attempt, list[Chunk]]:
        """The first output that is not rejected, else the last one; and its chunks."""
        settings, options = self.model.settings, self.options
        processors = whisper_processors(settings, len(prompt), timestamps=self.predicts_timestamps)
        for number, temperature in enumerate(options.temperature):
            self.stats.num_retries += number > 0
            pieces = self._decode(features, prompt, options.at(temperature, processors))
            self.stats.generations += [piece.stats for piece in pieces if piece.stats is not None]
            attempt = self._attempt(features, prompt, pieces, temperature)
            if not attempt.is_rejected(options):
                break
        return attempt, pieces

    def _attempt(
        self, features: Features, prompt: list[int], pieces: Iterable[Chunk], temperature: float
    ) -> Attempt:
        """An output with the figures that decide whether it is accepted."""
        tokens = tuple(token for piece in pieces for token in piece.token_ids)
        scores = [score.logprob or 0.0 for piece in pieces for score in piece.logprobs]
        attempt = Attempt(
            tokens,
            temperature,
            compression_ratio(tokens, self.model.settings.vocab_size),
            fmean(scores) if scores else None,
        )
        matters = attempt.is_unlikely(self.options) and self.options.no_speech_threshold is not None
        if matters or self.options.gives_segments:
            return replace(attempt, no_speech_prob=self._no_speech_prob(features, prompt))
        return attempt

    def _detect_language(self, features: Features) -> int:
        """The most likely language, by the row after the start of a transcript."""
        settings = self.model.settings
        [piece] = self._predict(features, [settings.decoder_start_token_id], settings.language_ids)
        return piece.token_ids[0]

    def _no_speech_prob(self, features: Features, prompt: list[int]) -> float:
        """The probability of no speech by the raw row after the start of the transcript."""
        settings = self.model.settings
        start = prompt[: prompt.index(settings.decoder_start_token_id) + 1]
        [piece] = self._predict(features, start, (settings.no_speech_token_id,))
        return exp(piece.logprobs[0].logprob or 0.0)

    def _predict(
        self, features: Features, prompt: list[int], allowed: tuple[int, ...]
    ) -> list[Chunk]:
        """Predict one token among `allowed`, with its log-probability before processors."""
        options = GenerationOptions(
            max_new_tokens=1,
            num_assistant_tokens=0,
            logprobs=0,
            logits_processor=(AllowOnly(allowed),),
            cache_salt=self.options.generation.get("cache_salt"),
        )
        return self._decode(features, prompt, options)

    def _decode(
        self, features: Features, prompt: list[int], options: GenerationOptions
    ) -> list[Chunk]:
        """All chunks of an output; raises `Cancelled` where the transcription was cancelled."""
        self._decoding = decoding = self.model.decode_window(features, prompt, options)
        if self._is_cancelled:  # before the decoding existed
            raise Cancelled
        try:
            return list(decoding)
        except Cancelled as error:
            if self._is_cancelled:
                raise
            raise SessionError(CLOSED) from error

    def _with_text(self, pieces: Iterable[Chunk]) -> list[Chunk]:
        """Chunks with the text of their tokens, without timestamps."""
        output = IncrementalDetokenizer(self.model.piece_after, [])
        ready = []
        for piece in pieces:
            output.push(self._text_tokens(piece.token_ids))
            ready.append(replace(piece, text=output.take()))
        if ready:
            ready[-1] = replace(ready[-1], text=ready[-1].text + output.finish())
        return ready

    def _text_tokens(self, tokens: Iterable[int]) -> list[int]:
        return [token for token in tokens if self.model.settings.is_text(token)]

    def _seconds(self, frame: int) -> float:
        """The time of a frame; that of the last is the recording's end."""
        if frame >= self.num_frames:
            return self.stats.audio_seconds
        return frame * self.model.extractor.hop_length / self.model.extractor.sampling_rate


class TranscriptionStream(ChunkStream[TranscriptionChunk]):
    """The chunks of one transcription, one for each window of up to 30 seconds.

    The last one has language, finish reason and statistics, and no text. audio_seconds: length of
    the recording.
    """

    def __init__(self, transcription: Transcription) -> None:
        super().__init__(transcription.chunks(), transcription.cancel)
        self.audio_seconds = transcription.stats.audio_seconds


def _first_tokens(pieces: Iterable[Chunk], count: int) -> Generator[Chunk, None, None]:
    """The chunks of the first `count` tokens, none of which ends the recording."""
    for piece in pieces:
        if count <= 0:
            return
        kept, logprobs = piece.token_ids[:count], piece.logprobs[:count]
        yield replace(piece, token_ids=kept, logprobs=logprobs, finish_reason=None, stats=None)
        count -= len(kept)
