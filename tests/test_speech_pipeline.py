"""Recordings through real models: what plain, speculative decoding and transformers make of them."""

import shutil

import numpy as np
import pytest
import soundfile

from ov_specdec import AudioError, ModelError, OptionError, SessionError, SpeculativePipeline
from ov_specdec.speech_pipeline import SpeechPipeline
from tests.tiny_whisper import CASES, IDS, MAX_LENGTH, NO_TIMESTAMPS, RATE, VOCAB_SIZE, recording

PLAIN = {"temperature": 0.0, "logprob_threshold": None, "compression_ratio_threshold": None}
"""Without fallback, as transformers decodes unless it is asked for one."""


@pytest.fixture(scope="module")
def pipeline(whisper):
    with SpeechPipeline(whisper.main, whisper.draft, precision="exact") as made:
        made.prepare(seconds=0.1)
        yield made


def decoded(pipeline, case, **options):
    """Tokens of the segments of a case, and the result."""
    seconds, given = CASES[case]
    given = {"language": "en", "condition_on_prev_tokens": False, **given, **PLAIN, **options}
    if "prompt" in given:
        given["initial_prompt"] = given.pop("prompt")
    chunks = list(pipeline.stream((recording(seconds), RATE), **given))
    tokens = [t for chunk in chunks for piece in chunk.pieces for t in piece.token_ids]
    return tokens, chunks[-1]


@pytest.mark.parametrize("case", CASES)
def test_speculative_is_plain_is_transformers(whisper, pipeline, case):
    expected = [token for segment in whisper.expected[case] for token in segment]
    plain, _ = decoded(pipeline, case, num_assistant_tokens=0)
    assert plain == expected
    for length in (1, 4, "auto"):
        tokens, last = decoded(pipeline, case, num_assistant_tokens=length)
        assert tokens == expected
        if length == 4:
            stats = last.stats.generation
            assert 0 < stats.accepted < stats.drafted, "nothing rejected, or nothing accepted"
