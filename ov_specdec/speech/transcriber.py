"""Transcribes one recording, window by window."""

import math
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ov_specdec.cache.slot import EncoderInput
from ov_specdec.engine.sequence import Cancelled
from ov_specdec.errors import CLOSED, OptionError, SessionError
from ov_specdec.generation.text_generator import GenerationStream, TextGenerator
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import Chunk, ChunkStream
from ov_specdec.results.stats import FinishReason
from ov_specdec.runner.encoder_decoder import Aligner, Encoder
from ov_specdec.sampling.logits import TokenLogprobs
from ov_specdec.speech.audio import Samples
from ov_specdec.speech.features import FeatureExtractor
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import Segment, SpeechStats, TranscriptionChunk
from ov_specdec.speech.settings import TimedTokens, WhisperSettings, allow_only
from ov_specdec.speech.words import Spoken, timed_words, token_times
from ov_specdec.text.detokenizer import IncrementalDetokenizer

LOW_TEMPERATURE = 0.5
"""Outputs at lower temperatures condition the next window."""


class Attempt(NamedTuple):
    """A window's output at one temperature.

    figures: by their names in a `Segment`. has_no_speech: silence is likely, and the output is not.
    is_rejected: it repeats itself or is unlikely, and should be retried.
    """

    chunks: Sequence[Chunk]
    figures: Mapping[str, Any]
    has_no_speech: bool
    is_rejected: bool


@dataclass
class Whisper:
    """What all transcriptions of a model share.

    generator: of its tokens. encoders: of main and draft. aligner: the model for word times, which
    the first call compiles; raises `ModelError` if there can be none.
    """

    settings: WhisperSettings
    extractor: FeatureExtractor
    generator: TextGenerator
    encoders: Sequence[Encoder]
    aligner: Callable[[], Aligner]

    @property
    def encoder_seconds(self) -> float:
        """Total time of all encoder passes so far."""
        return sum(encoder.seconds for encoder in self.encoders)


class Transcription:
    """The transcription of one recording, with options checked against the model.

    samples: mono, at the rate of the model's extractor. Raises `OptionError` for a language or a
    task that the model does not support, and for an initial prompt that contains special tokens.
    """

    def __init__(self, model: Whisper, samples: Samples, options: TranscriptionOptions) -> None:
        self.model, self.samples, self.options = model, samples, options
        self._settings, self._tokenizer = model.settings, model.generator.prompts.tokenizer
        settings, extractor = model.settings, model.extractor
        self.stats = SpeechStats(len(samples) / extractor.sampling_rate)
        self.num_frames = max(1, len(samples) // extractor.hop_length)
        is_long = self.num_frames > extractor.num_frames
        self._predicts_timestamps = is_long or options.gives_segments
        settings.check_task(options.task)
        given = options.language
        self._language = None if given is None else settings.language_id(given)
        self._knows_language = given is not None or not settings.is_multilingual
        self._previous: list[int] = []  # tokens of the segments so far
        self._temperature = 0.0  # of the last window's output
        self._has_text = self._is_cancelled = False
        self._decoding: GenerationStream | None = None  # the current output, or the last one
        text = options.initial_prompt
        self._initial = self._tokenizer.encode_rendered(f" {text.strip()}").ids if text else []
        if marks := [token for token in self._initial if not settings.is_text(token)]:
            raise OptionError(
                f"{{initial_prompt}} contains the special token {marks[0]}: leave it out",
                initial_prompt=text,
            )

    def chunks(self) -> Generator[TranscriptionChunk, None, None]:
        """A chunk for each window, then one that ends the transcription."""
        start, stats = 0, self.stats
        while start < self.num_frames and not self._is_cancelled:
            began, encoded = perf_counter(), self.model.encoder_seconds
            try:
                start, chunk = self._transcribe(start)
            except Cancelled:
                break
            finally:
                stats.seconds += perf_counter() - began
                stats.encoder_seconds += self.model.encoder_seconds - encoded
            yield chunk
        code = self._settings.language_code(self._language) if self._knows_language else None
        reason: FinishReason = "cancelled" if self._is_cancelled else "stop"
        ending = Chunk("", [], "plain", finish_reason=reason, stats=stats.generation)
        yield TranscriptionChunk("", self._seconds(start), (ending,), (), code, reason, stats)

    def cancel(self) -> None:
        """End it within one pass of a model. From any thread."""
        self._is_cancelled = True
        if self._decoding is not None:
            self._decoding.cancel()

    @cached_property
    def _features(self) -> NDArray[np.float32]:
        """Those of the whole recording, whose loudest frame bounds all others."""
        return self.model.extractor.features(self.samples)

    def _transcribe(self, start: int) -> tuple[int, TranscriptionChunk]:
        """Decode the window from this frame. Returns the start of the next one, and its chunk."""
        extractor, settings, options = self.model.extractor, self._settings, self.options
        length = min(self.num_frames - start, extractor.num_frames)
        first, last = (frame * extractor.hop_length for frame in (start, start + length))
        threshold = options.silence_threshold
        if threshold is not None and extractor.is_silent(self.samples[first:last], threshold):
            return self._skip(start + length)
        window = extractor.window(self._features, start)
        source = EncoderInput(window[None], options.generation.get("cache_salt"))
        if not self._knows_language:
            first_token, languages = settings.decoder_start_token_id, settings.lang_to_id
            self._language = self._predict(source, [first_token], languages.values()).token_id
            self._knows_language = True
        self.stats.num_windows += 1
        prompt = self._prompt()
        attempt = self._first_accepted(source, prompt)
        if attempt.has_no_speech:
            return self._skip(start + length)
        output = [token for chunk in attempt.chunks for token in chunk.token_ids]
        tokens = tuple(token for token in output if token != settings.eos_token_id)
        segments, num_frames = [TimedTokens(0.0, extractor.seconds(length), tokens)], length
        if self._predicts_timestamps:
            segments, num_frames = settings.split(tokens, length, extractor.seconds(1))
        for timed in segments:  # without the second of two timestamps at its end
            doubled = len(timed.tokens) > 2 and settings.is_timestamp(timed.tokens[-2])
            self._previous += timed.tokens[:-1] if doubled else timed.tokens
        pieces = self._with_text(attempt.chunks, sum(len(timed.tokens) for timed in segments))
        text = "".join(piece.text for piece in pieces)
        text = text if self._has_text else text.lstrip()  # Whisper's text begins with a space
        self._has_text |= bool(text)
        done: Iterable[Segment] = ()
        if options.gives_segments:
            times_words = options.word_timestamps and tokens
            spoken = self._spoken(tokens, start, length, source, prompt) if times_words else []
            done = self._segments(segments, spoken, start, attempt)
        end = start + num_frames
        return end, TranscriptionChunk(text, self._seconds(end), tuple(pieces), tuple(done))

    def _skip(self, end: int) -> tuple[int, TranscriptionChunk]:
        """Skip a window. Returns the start of the next one, and an empty chunk."""
        self.stats.num_skipped += 1
        return end, TranscriptionChunk("", self._seconds(end))

    def _prompt(self) -> list[int]:
        """Previous text, if any, and the start tokens."""
        settings, options = self._settings, self.options
        is_conditioned = options.condition_on_prev_tokens and self._temperature < LOW_TEMPERATURE
        previous = [*self._initial, *(self._previous if is_conditioned else ())]
        start = settings.start_tokens(self._language, options.task, self._predicts_timestamps)
        # Half of the context is left to the output.
        recent = previous[1 - settings.max_target_positions // 2 :]
        return [settings.prev_sot_token_id, *recent, *start] if previous else start

    def _first_accepted(self, source: EncoderInput, prompt: list[int]) -> Attempt:
        """The first output that is not rejected, else the last one."""
        processors = self._settings.processors(len(prompt), timestamps=self._predicts_timestamps)
        for number, temperature in enumerate(self.options.temperature):
            self.stats.num_retries += number > 0
            attempt = self._attempt(source, prompt, self.options.at(temperature, processors))
            self._temperature = temperature
            if not attempt.is_rejected:
                break
        return attempt

    def _attempt(
        self, source: EncoderInput, prompt: list[int], given: GenerationOptions
    ) -> Attempt:
        """An output with the figures that decide whether it is accepted."""
        settings, options = self._settings, self.options
        chunks = self._decode(source, prompt, given)
        self.stats.generations += [chunk.stats for chunk in chunks if chunk.stats is not None]
        tokens = [token for chunk in chunks for token in chunk.token_ids]
        scores = [score.logprob or 0.0 for chunk in chunks for score in chunk.logprobs]
        figures: dict[str, Any] = {
            "temperature": given.temperature,
            # Of processed rows, without temperature; None if no option needs it.
            "avg_logprob": fmean(scores) if scores else None,
            "compression_ratio": compression_ratio(tokens, settings.vocab_size),
        }
        repeats = _exceeds(figures["compression_ratio"], options.compression_ratio_threshold)
        is_unlikely = _exceeds(options.logprob_threshold, figures["avg_logprob"])
        if options.gives_segments or (is_unlikely and options.no_speech_threshold is not None):
            # By the raw row after the start of the transcript.
            start = prompt[: prompt.index(settings.decoder_start_token_id) + 1]
            found = self._predict(source, start, [settings.no_timestamps_token_id - 1])
            figures["no_speech_prob"] = math.exp(found.logprob or 0.0)
        is_quiet = _exceeds(figures.get("no_speech_prob"), options.no_speech_threshold)
        has_no_speech = is_quiet and is_unlikely
        is_rejected = (repeats or is_unlikely) and not has_no_speech
        return Attempt(chunks, figures, has_no_speech, is_rejected)

    def _predict(
        self, source: EncoderInput, prompt: list[int], allowed: Iterable[int]
    ) -> TokenLogprobs:
        """Predict one token among `allowed`, with its log-probability before processors."""
        options = GenerationOptions(
            max_new_tokens=1,
            num_assistant_tokens=0,
            logprobs=0,
            logits_processor=(partial(allow_only, tuple(allowed)),),
            cache_salt=self.options.generation.get("cache_salt"),
        )
        [chunk] = self._decode(source, prompt, options)
        return chunk.logprobs[0]

    def _decode(
        self, source: EncoderInput, prompt: list[int], options: GenerationOptions
    ) -> list[Chunk]:
        """All chunks of an output; raises `Cancelled` where the transcription was cancelled."""
        self._decoding = decoding = self.model.generator.stream_window(source, prompt, options)
        if self._is_cancelled:  # before the decoding existed
            raise Cancelled
        chunks = list(decoding)
        if chunks[-1].finish_reason == "cancelled":
            raise Cancelled if self._is_cancelled else SessionError(CLOSED)
        return chunks

    def _with_text(self, chunks: Iterable[Chunk], count: int) -> list[Chunk]:
        """The chunks of the first `count` tokens with their text, without timestamps.

        None of them ends the recording.
        """
        output, pieces = IncrementalDetokenizer(self._tokenizer.piece_after, []), list[Chunk]()
        for chunk in chunks:
            if count <= 0:
                break
            ids, logprobs = chunk.token_ids[:count], chunk.logprobs[:count]
            output.push(self._text_tokens(ids))
            piece = replace(chunk, text=output.take()[0], token_ids=ids, logprobs=logprobs)
            pieces.append(replace(piece, finish_reason=None, stats=None))
            count -= len(ids)
        if pieces:
            pieces[-1] = replace(pieces[-1], text=pieces[-1].text + output.finish()[0])
        return pieces

    def _text_tokens(self, tokens: Iterable[int]) -> list[int]:
        return [token for token in tokens if self._settings.is_text(token)]

    def _spoken(
        self,
        tokens: Sequence[int],
        start: int,
        length: int,
        source: EncoderInput,
        prompt: list[int],
    ) -> list[Spoken]:
        """The tokens of a window's output with their times."""
        weights = self.model.aligner().weights(source, [*prompt, *tokens])
        heard = weights[:, len(prompt) :, : max(length // 2, 1)]
        times = token_times(heard, self._settings.median_filter_width)
        bounds = [self._time(self._seconds(start) + seconds) for seconds in (0.0, *times)]
        return list(zip(tokens, bounds, bounds[1:], strict=False))

    def _segments(
        self,
        segments: Iterable[TimedTokens],
        spoken: Sequence[Spoken],
        start: int,
        attempt: Attempt,
    ) -> Iterator[Segment]:
        """The segments that hold text. spoken: the window's tokens with their times, or none."""
        code, decode = self._settings.language_code(self._language), self._tokenizer.decode
        written = "en" if self.options.task == "translate" else code
        first, offset = 0, self._seconds(start)
        for begin, end, tokens in segments:
            own = spoken[first : first + len(tokens)]
            first += len(tokens)
            if text := self._text_tokens(tokens):
                own = [each for each in own if self._settings.is_text(each[0])]
                words = tuple(timed_words(own, decode, written))
                # At least a hundredth long, even past the recording.
                end = max(self._time(offset + end), 0.01)
                begin = min(self._time(offset + begin), round(end - 0.01, 2))
                yield Segment(
                    begin, end, decode(text), tokens, start, **attempt.figures, words=words
                )

    def _time(self, seconds: float) -> float:
        """A time within the recording, rounded for segments and words."""
        return round(min(seconds, self.stats.audio_seconds), 2)

    def _seconds(self, frame: int) -> float:
        """The time of a frame; that of the last is the recording's end."""
        is_last = frame >= self.num_frames
        return self.stats.audio_seconds if is_last else self.model.extractor.seconds(frame)


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> float:
    """The zlib compression ratio of the tokens' bytes; high for text that repeats itself."""
    size = int(math.log2(vocab_size) / 8) + 1
    content = b"".join(token.to_bytes(size, "little") for token in tokens)
    return len(content) / len(zlib.compress(content))


def _exceeds(value: float | None, limit: float | None) -> bool:
    """Whether one is greater than the other; False if one of them is unknown."""
    return value is not None and limit is not None and value > limit


class TranscriptionStream(ChunkStream[TranscriptionChunk]):
    """The chunks of one transcription, one for each window of up to 30 seconds.

    The last one has language, finish reason and statistics, and no text. audio_seconds: length of
    the recording.
    """

    def __init__(self, transcription: Transcription) -> None:
        super().__init__(transcription.chunks(), transcription.cancel)
        self.audio_seconds = transcription.stats.audio_seconds
