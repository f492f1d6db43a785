"""Times of words: dynamic time warping, words of tokens, and what subtitles show."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import WhisperConfig
from transformers.models.whisper.generation_whisper import (
    WhisperGenerationMixin,
    _dynamic_time_warping,
)

from ov_specdec.speech.segments import Segment, SpeechStats, TranscriptionResult, write
from ov_specdec.speech.words import Word, first_positions, timed_words, token_times

SIZES = [(1, 1), (1, 40), (5, 1), (30, 7), (9, 60), (60, 200)]


@pytest.mark.parametrize("size", SIZES)
def test_the_cheapest_path_is_that_of_transformers(size):
    costs = np.random.default_rng(1).normal(size=size)
    costs[:, ::3] = costs[0, 0]  # paths that cost alike
    tokens, places = _dynamic_time_warping(costs)
    jumps = np.pad(np.diff(tokens), (1, 0), constant_values=1).astype(bool)
    assert first_positions(costs) == places[jumps].tolist()


@pytest.mark.parametrize("size", [(2, 3), *SIZES[3:]])
def test_times_of_tokens_are_those_of_transformers(size):
    rng = np.random.default_rng(2)
    weights = rng.dirichlet(np.ones(size[1]), (4, size[0])).astype(np.float32)
    model = WhisperGenerationMixin()
    model.config = WhisperConfig(decoder_layers=1, median_filter_width=7)
    attention = torch.tensor(weights)[None]
    made = {"cross_attentions": [[attention]], "sequences": torch.zeros(1, size[0])}
    heads = [(0, head) for head in range(4)]
    outputs = type("Outputs", (SimpleNamespace,), {"__contains__": lambda _, k: k in made})(**made)
    expected = model._extract_token_timestamps(outputs, heads, num_input_ids=0)[0, :-1]
    np.testing.assert_allclose(token_times(weights, 7), expected.numpy(), atol=1e-6)


def test_a_head_that_attends_alike_everywhere_counts_for_nothing():
    weights = np.full((2, 3, 10), 0.1, np.float32)
    weights[1] = np.eye(3, 10, dtype=np.float32)
    assert token_times(weights, 1) == pytest.approx([0.0, 0.02, 0.04])


class Bytes:
    """A tokenizer whose tokens are some bytes each."""

    def __init__(self, parts):
        self.parts = [part.encode() if isinstance(part, str) else part for part in parts]

    def decode(self, tokens, **_options):
        return b"".join(self.parts[token] for token in tokens).decode(errors="replace")


def test_a_word_lasts_from_its_first_token_to_its_last():
    tokenizer = Bytes([" qu", "ick", " fox", "."])
    spoken = [(i, i / 10, i / 10 + 0.1) for i in range(4)]
    assert list(timed_words(spoken, tokenizer.decode, "en")) == [
        Word(0.0, 0.2, " quick"),
        Word(0.2, 0.4, " fox."),
    ]
    assert list(timed_words([], tokenizer.decode, "en")) == []
    tokenizer = Bytes(["日", "本語", "、", b"\xe3\x81", b"\x82"])
    spoken = [(i, i / 10, i / 10 + 0.1) for i in range(5)]
    assert [word.text for word in timed_words(spoken, tokenizer.decode, "ja")] == [
        *("日", "本語、", "あ")
    ]


def test_a_subtitle_of_webvtt_shows_when_words_begin():
    words = (
        Word(1.0, 1.2, " a"),
        Word(1.5, 1.5, " <b>"),
        Word(1.5, 1.9, " c"),
        Word(2.5, 2.6, " d"),  # after the end of its segment
    )
    segment = Segment(1.0, 2.0, " a <b> c d", words=words)
    result = TranscriptionResult("a <b> c d", (segment,), "en", SpeechStats(3.0))
    assert write(result, "vtt").splitlines()[2:4] == [
        "00:00:01.000 --> 00:00:02.000",
        "a<00:00:01.500> &lt;b&gt; c d",
    ]
    assert '"word": " a"' in write(result, "json")
