"""What becomes of a recording's windows, with a scripted decoder in place of a model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from ov_specdec.errors import OptionError
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import GenerationStats, RoundStats
from ov_specdec.sampling.logits import TokenLogprobs
from ov_specdec.speech.features import FeatureExtractor
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import collect
from ov_specdec.speech.settings import WhisperSettings
from ov_specdec.speech.transcriber import Transcription
from ov_specdec.speech.words import Word
from tests.support.tiny_whisper import ENGLISH, SETTINGS

RATE = 16000
T, END = SETTINGS.timestamp_begin, SETTINGS.eos_token_id
EN, DE = 52, 53
# Windows of one second: a long recording is one of a few seconds.
EXTRACTOR = FeatureExtractor(chunk_length=1)
DETECT = [51]


@dataclass
class ScriptedDecoder:
    """A Whisper that gives outputs in their order; of one token where it is looked at a single row.

    outputs: ids, or ids with their log-probability. language, no_speech: the answers to those.
    """

    outputs: Sequence[list[int] | tuple[list[int], float]]
    language: int = DE
    no_speech: float = 0.0
    prompts: list[list[int]] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    looks: list[list[int]] = field(default_factory=list)
    salts: list[str | None] = field(default_factory=list)
    encoder_seconds: float = 0.0
    reason: str = "stop"
    settings: WhisperSettings = SETTINGS
    extractor = EXTRACTOR

    @property
    def generator(self):
        encoder = SimpleNamespace(tokenizer=self)
        return SimpleNamespace(prompts=encoder, stream_window=self.stream_window)

    def aligner(self):
        return self

    def encode_rendered(self, text, *_, **__):
        return SimpleNamespace(ids=[len(word) for word in text.split()])

    def decode(self, ids):
        return "".join(f" {token}" for token in ids)

    def piece_after(self, previous, token):
        return f" {token}".encode()

    def stream_window(self, source, prompt, options) -> GenerationStream:
        cancelled = []
        assert source.namespace == options.cache_salt
        chunks = self.chunks(source.values[0], prompt, options)
        return GenerationStream(until(cancelled, chunks), lambda: cancelled.append(True))

    def chunks(self, features, prompt, options) -> Iterator[Chunk]:
        assert features.shape == (80, EXTRACTOR.num_frames)
        self.encoder_seconds += 0.5
        self.salts.append(options.cache_salt)
        if options.max_new_tokens == 1:
            self.looks.append(prompt)
            row = np.zeros(80, np.float32)
            row[self.language] = 1.0
            token = int(options.logits_processor[0]([*prompt], row).argmax())
            yield chunk([token], np.log(max(self.no_speech, 1e-9)), last=True)
            return
        output = self.outputs[len(self.prompts)]
        self.prompts.append(prompt)
        self.temperatures.append(options.temperature)
        ids, logprob = output if isinstance(output, tuple) else (output, -0.1)
        for i, token in enumerate(ids):
            yield chunk([token], logprob, last=i == len(ids) - 1, reason=self.reason)

    def weights(self, source, tokens):
        """Each token of the output is heard for a fifth of a second after the one before."""
        assert source.namespace == self.salts[-1]
        begin = len(self.prompts[-1])
        assert tokens[:begin] == self.prompts[-1]
        rows = np.zeros((1, len(tokens), EXTRACTOR.num_frames // 2), np.float32)
        for place in range(len(tokens) - begin):
            rows[0, begin + place, 10 * place : 10 * place + 10] = 1.0
        return rows


def until(cancelled, chunks):
    """Chunks up to a cancellation."""
    for piece in chunks:
        yield piece
        if cancelled:
            yield chunk([], 0.0, last=True, reason="cancelled")
            return


def chunk(ids, logprob, *, last, reason="stop"):
    rounds = [RoundStats(2, 1, 1, 0.0, 0.0, 0.0, 0.1)]
    return Chunk(
        "?",
        ids,
        "plain",
        finish_reason=reason if last else None,
        stats=GenerationStats(3, rounds) if last else None,
        logprobs=[TokenLogprobs(token, logprob) for token in ids],
    )


def noise(seconds):
    return np.random.default_rng(3).normal(size=int(seconds * RATE), scale=0.1).astype("f4")


def transcription(decoder, samples, settings=SETTINGS, **options):
    decoder.settings = settings
    return Transcription(decoder, samples, TranscriptionOptions.from_kwargs(options))


def run(decoder, samples, settings=SETTINGS, **options):
    return collect(list(transcription(decoder, samples, settings, **options).chunks()))


def test_the_language_is_detected_once_in_the_first_window():
    decoder = ScriptedDecoder([[T, 1, T + 50, END], [T, 2, T + 50, END]])
    found = run(decoder, noise(2.0))
    assert decoder.looks == [DETECT]
    assert decoder.prompts[0] == [51, DE, 54]
    assert (found.language, found.text) == ("de", "1 2")


@pytest.mark.parametrize("language", ["auto", " Auto"])
def test_auto_detects_the_language(language):
    decoder = ScriptedDecoder([[1, END]])
    assert run(decoder, noise(0.5), language=language).language == "de"
    assert run(ScriptedDecoder([[1, END]]), noise(0.5), ENGLISH, language=language).text == "1"


def test_words_are_timed_from_the_beginning_of_their_window():
    # What follows the last pair is decoded again, and its words are not shown twice.
    decoder = ScriptedDecoder([[T, 1, 2, T + 30, T + 30, END], [T, 3, T + 50, END]])
    found = run(decoder, noise(1.5), language="en", word_timestamps=True, cache_salt="mine")
    assert [each.words for each in found.segments] == [
        (Word(0.0, 0.2, " 1"), Word(0.2, 0.4, " 2")),
        (Word(0.6, 0.8, " 3"),),
    ]


@pytest.mark.parametrize(("task", "words"), [("transcribe", ["1", "2"]), ("translate", ["12"])])
def test_a_language_without_spaces_has_words_of_a_character(task, words):
    settings = replace(SETTINGS, lang_to_id={"<|ja|>": EN})
    decoder = ScriptedDecoder([[T, 1, 2, T + 50, END]])
    running = transcription(
        decoder, noise(1.0), settings, language="ja", task=task, word_timestamps=True
    )
    running.model.decode = lambda ids: "".join(map(str, ids))
    [segment] = collect(list(running.chunks())).segments
    assert [word.text for word in segment.words] == words


def test_chunks_add_up_to_the_text_and_tell_how_far_they_are():
    outputs = [[T, 1, T + 50, END], [T, 2, T + 50, END]]
    chunks = list(transcription(ScriptedDecoder(outputs), noise(2.0), language="en").chunks())
    assert [(piece.text, piece.end) for piece in chunks] == [("1", 1.0), (" 2", 2.0), ("", 2.0)]
    assert [token for piece in chunks[0].pieces for token in piece.token_ids] == [T, 1, T + 50]
    assert "".join(piece.text for piece in chunks[0].pieces) == " 1"


def test_nobody_is_told_of_what_came_at_a_high_temperature():
    outputs = [([T, 1, T + 50, END], -3.0)] * 4 + [[T, 2, T + 50, END]] * 2
    decoder = ScriptedDecoder(outputs)
    run(decoder, noise(2.0), language="en", no_speech_threshold=None)
    assert decoder.temperatures == [0.0, 0.2, 0.4, 0.6, 0.8, 0.0]
    assert decoder.prompts[-1] == [51, EN, 54]


@pytest.mark.parametrize(
    ("outputs", "options", "temperatures", "text"),
    [
        ([[9] * 40, [1, 2, END]], {}, [0.0, 0.2], "1 2"),  # it repeats itself
        ([([1, END], -2.0), ([2, END], -2.0)], {"temperature": (0.0, 0.5)}, [0.0, 0.5], "2"),
        ([([1, END], -9.0)], {"temperature": 0}, [0.0], "1"),
    ],
)
def test_a_rejected_output_is_tried_again_with_each_temperature(
    outputs, options, temperatures, text
):
    decoder = ScriptedDecoder(outputs)
    found = run(decoder, noise(0.5), language="en", **options)
    assert (decoder.temperatures, found.text) == (temperatures, text)
    assert found.stats.num_retries == len(found.stats.generations) - 1 == len(temperatures) - 1


@pytest.mark.parametrize(
    ("logprob", "no_speech", "text"), [(-2.0, 0.7, ""), (-2.0, 0.5, "1"), (-0.5, 0.7, "1")]
)
def test_an_unlikely_output_is_left_out_where_there_is_no_speech(logprob, no_speech, text):
    decoder = ScriptedDecoder([([1, END], logprob)], no_speech=no_speech)
    found = run(decoder, noise(0.5), initial_prompt="ab", language="en", temperature=0)
    assert found.text == text
    # The row after the start of the transcript, whatever is told before it.
    assert decoder.looks == ([[56, 2, 51]] if logprob == -2.0 else [])
    assert found.stats.num_skipped == (not text)


def test_all_that_is_read_of_a_recording_is_under_its_salt():
    decoder = ScriptedDecoder([[T, 1, T + 20, END]])
    run(decoder, noise(0.5), return_timestamps=True, cache_salt="mine")
    assert len(decoder.looks) == 2  # for the language, and for speech
    assert decoder.salts == ["mine"] * 3


def test_silence_is_skipped_without_a_pass():
    decoder = ScriptedDecoder([[T, 1, T + 50, END]])
    samples = np.concatenate([np.zeros(2 * RATE, "f4"), noise(0.5)])
    found = run(decoder, samples)
    assert (found.text, found.stats.num_windows, found.stats.num_skipped) == ("1", 1, 2)
    assert decoder.looks == [DETECT]
    silent = run(ScriptedDecoder([]), np.zeros(3600 * 16, "f4"))
    assert (silent.text, silent.language, silent.stats.num_windows) == ("", None, 0)


def test_a_cancelled_transcription_ends_within_a_round():
    decoder = ScriptedDecoder([[1] * 100, [2] * 100])
    running = transcription(decoder, noise(2.0), language="en")
    original = decoder.chunks

    def chunks(*arguments):
        for number, piece in enumerate(original(*arguments)):
            assert number <= 3
            if number == 3:
                running.cancel()
            yield piece

    decoder.chunks = chunks
    [last] = running.chunks()
    assert (last.finish_reason, last.end) == ("cancelled", 0.0)
    assert (len(decoder.prompts), decoder.looks) == (1, [])


def test_a_cancelled_transcription_does_not_look_for_speech():
    decoder = ScriptedDecoder([[T, 1, T + 50, END]])
    running = transcription(decoder, noise(2.0), language="en", return_timestamps=True)
    original = decoder.chunks

    def chunks(*arguments):
        yield from original(*arguments)
        running.cancel()  # in its last pass

    decoder.chunks = chunks
    assert [last.finish_reason for last in running.chunks()] == ["cancelled"]
    assert decoder.looks == []


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_window_is_not_the_end_of_the_recording(reason):
    # One chunk of all tokens; what follows the pair of timestamps is left to the next window.
    class AtOnce(ScriptedDecoder):
        def chunks(self, *arguments):
            ids = [t for piece in super().chunks(*arguments) for t in piece.token_ids]
            yield chunk(ids, -0.1, last=True, reason=self.reason)

    decoder = AtOnce([[T, 1, T + 30, T + 30, 2], [T, 2, T + 50]], reason=reason)
    *windows, last = transcription(decoder, noise(1.6), language="en").chunks()
    [first], [second] = (window.pieces for window in windows)
    assert (first.token_ids, second.token_ids) == ([T, 1, T + 30, T + 30], [T, 2, T + 50])
    assert [score.token_id for score in first.logprobs] == first.token_ids
    assert [(p.finish_reason, p.stats) for p in (first, second)] == [(None, None)] * 2
    assert last.finish_reason == "stop"


def test_times_are_within_the_recording_and_rounded():
    decoder = ScriptedDecoder([[T, 1, T + 33, T + 33, 2, T + 50, END]])
    found = run(decoder, noise(0.8), language="en", return_timestamps=True)
    times = [(segment.start, segment.end) for segment in found.segments]
    assert times == [(0.0, 0.66), (0.66, 0.8)]


def test_an_initial_prompt_may_hold_no_special_token():
    with pytest.raises(OptionError, match=r"'a x.* the special token 58: leave it out"):
        transcription(ScriptedDecoder([]), noise(0.5), initial_prompt="a " + "x" * 58)


def test_of_a_long_initial_prompt_the_last_tokens_count():
    decoder = ScriptedDecoder([[1, END]])
    run(decoder, noise(0.5), language="en", initial_prompt="a " * 40 + "bc def")
    assert decoder.prompts == [[SETTINGS.prev_sot_token_id, *[1] * 29, 2, 3, 51, EN, 54, 58]]
