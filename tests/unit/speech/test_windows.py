"""Where windows end, against transformers; options; subtitles."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import WhisperForConditionalGeneration

from ov_specdec.errors import OptionError
from ov_specdec.speech.features import FeatureExtractor
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import Segment, clock, write
from ov_specdec.speech.transcriber import compression_ratio
from tests.support.recordings import result
from tests.support.tiny_whisper import SETTINGS

EXTRACTOR = FeatureExtractor()
T = SETTINGS.timestamp_begin


@pytest.mark.parametrize(("level", "silent"), [(-61.0, True), (-59.0, False)])
def test_a_window_is_silent_below_the_threshold(level, silent):
    samples = np.zeros(16000, np.float32)
    samples[4800:6400] = 10 ** (level / 20)  # for a tenth of a second
    assert EXTRACTOR.is_silent(samples, -60.0) is silent


def reference(tokens, length):
    """Segments as (start, end, tokens), and the frames until the next window."""
    segments, offset = WhisperForConditionalGeneration._retrieve_segment(
        seek_sequence=torch.tensor(tokens),
        seek_outputs=[torch.tensor(tokens)],
        time_offset=torch.tensor([0.0], dtype=torch.float64),
        timestamp_begin=T,
        seek_num_frames=torch.tensor([length]),
        time_precision=0.02,
        time_precision_features=0.01,
        input_stride=2,
        prev_idx=0,
        idx=0,
        return_token_timestamps=False,
        decoder_input_ids=torch.tensor([[1]]),
    )
    found = [(float(s["start"]), float(s["end"]), tuple(s["tokens"].tolist())) for s in segments]
    return found, int(offset)


@pytest.mark.parametrize(
    "tokens",
    [
        [T, 1, 2, T + 5],
        [T, 1, 2, T + 5, T + 5],
        [T, 1, T + 3, T + 4, 2, 3, T + 9],
        [T, 1, T + 3, T + 4, 2, 3],
        [T, 1, T + 3, T + 3, 2, T + 7, T + 8],
        [1, 2, 3],
        [T, 1, 2],
        [T + 2, 1],
        [T],
    ],
)
@pytest.mark.parametrize("length", [3000, 701])
def test_windows_are_cut_as_in_transformers(tokens, length):
    found, num_frames = SETTINGS.split(tokens, length, EXTRACTOR.seconds(1))
    segments, expected = reference(tokens, length)
    assert [segment.tokens for segment in found] == [tokens for *_, tokens in segments]
    times = [(segment.start, segment.end) for segment in found]
    np.testing.assert_allclose(times, [times for *times, _ in segments], atol=0.011)
    assert num_frames == expected > 0


@pytest.mark.parametrize("tokens", [[1, 2, 3], [7] * 60, list(range(50))])
@pytest.mark.parametrize("vocab_size", [80, 51865])
def test_repetition_shows_in_the_compression_ratio(tokens, vocab_size):
    theirs = WhisperForConditionalGeneration._retrieve_compression_ratio
    assert compression_ratio(tokens, vocab_size) == theirs(torch.tensor(tokens), vocab_size)


def test_subtitles_number_and_time_the_segments():
    assert write(result(), "srt") == (
        "1\n00:00:00,000 --> 00:00:02,500\nFirst -> line.\n\n"
        "2\n01:01:01,500 --> 01:01:02,042\nSecond.\n\n"
    )
    assert write(result(), "vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nFirst --&gt; line.\n\n"
        "01:01:01.500 --> 01:01:02.042\nSecond.\n\n"
    )


def test_marks_of_webvtt_are_text():
    marked = replace(result(), segments=(Segment(0.0, 2.5, " R&D <b>"),))
    assert write(marked, "vtt").endswith("\nR&amp;D &lt;b&gt;\n\n")
    assert write(marked, "srt").endswith("\nR&D <b>\n\n")


def test_json_holds_text_segments_and_figures():
    content = json.loads(write(result(), "json"))
    assert content["text"] == "First line. Second."
    assert content["segments"][1]["start"] == 3661.5
    assert content["stats"]["audio_seconds"] == 3662.0
    assert write(result(), "txt") == "First line. Second.\n"


def test_times_are_rounded_once():
    assert clock(59.9996, ",") == "00:01:00,000"
    assert all(a < b for a, b in pairwise(clock(i / 7, ".") for i in range(100)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "sing"}, "task='sing' must be one of transcribe, translate"),
        ({"temperature": ()}, "temperature="),
        ({"stop_strings": "a"}, "unknown option 'stop_strings'"),
        ({"langage": "en"}, "did you mean language"),
        ({"initial_prompt": "a\udce4"}, "initial_prompt is not valid text: give it as UTF-8"),
        ({"logits_processor": print}, "must be a list of functions"),
    ],
)
def test_options_are_checked_by_name(options, message):
    with pytest.raises(OptionError, match=message.replace("(", r"\(")):
        TranscriptionOptions.from_kwargs(options)


def test_temperatures_may_come_from_a_generator():
    options = TranscriptionOptions(temperature=(t / 10 for t in (0, 5)))
    assert [options.temperature for _ in range(2)] == [(0.0, 0.5)] * 2
