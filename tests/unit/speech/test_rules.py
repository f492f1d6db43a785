"""Whisper's own rules against those of transformers, and its languages."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from ov_specdec.errors import OptionError
from ov_specdec.sampling.samplers import process
from ov_specdec.speech.settings import allow_only
from tests.support.tiny_whisper import ENGLISH, SETTINGS

BEGIN = 3


def reference(tokens, row, *, timestamps):
    config = SimpleNamespace(
        no_timestamps_token_id=58, eos_token_id=50, bos_token_id=50, max_initial_timestamp_index=10
    )
    chain = [
        SuppressTokensAtBeginLogitsProcessor(SETTINGS.begin_suppress_tokens, BEGIN),
        SuppressTokensLogitsProcessor(SETTINGS.suppress_tokens),
        *([WhisperTimeStampLogitsProcessor(config, BEGIN)] if timestamps else []),
    ]
    ids, scores = torch.tensor([tokens]), torch.tensor(row)[None]
    for processor in chain:
        scores = processor(ids, scores)
    return scores[0].numpy()


@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_rows_are_those_of_transformers(timestamps, scale):
    random = np.random.default_rng(5)
    processors = SETTINGS.processors(BEGIN, timestamps=timestamps)
    chosen = 0
    for _ in range(40):
        tokens = [51, 52, 54]
        for _ in range(20):
            row = random.normal(scale=scale, size=80).astype(np.float32)
            before = row.copy()
            found = process(processors, tokens, row)
            np.testing.assert_array_equal(found, reference(tokens, row, timestamps=timestamps))
            np.testing.assert_array_equal(row, before)
            if found.max() == -np.inf:
                break
            tokens.append(int(found.argmax()))
            chosen += tokens[-1] > 58
    assert chosen > 100 or not timestamps


def test_all_but_the_allowed_are_forbidden():
    row = np.arange(5, dtype=np.float32)
    found = allow_only((1, 3), [], row)
    np.testing.assert_array_equal(found, [-np.inf, 1, -np.inf, 3, -np.inf])


@pytest.mark.parametrize("name", ["de", "DE", "german", " German ", "<|de|>"])
def test_a_language_has_many_names(name):
    assert SETTINGS.language_id(name) == 53
    assert SETTINGS.language_code(53) == "de"


def test_a_model_of_english_has_no_language_token():
    assert ENGLISH.language_id("english") is None
    assert ENGLISH.language_code(None) == "en"
    assert ENGLISH.start_tokens(None, "transcribe", timestamps=False) == [51, 58]
    with pytest.raises(OptionError, match="language='de' is not known to this model"):
        ENGLISH.language_id("de")
    with pytest.raises(OptionError, match=r"task='translate' .* English-only"):
        ENGLISH.check_task("translate")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("germn", "did you mean german"),
        ("xx", "there are: de, en"),
        ("french", "there are: de, en"),
    ],
)
def test_an_unknown_language_is_refused_with_a_hint(name, hint):
    with pytest.raises(OptionError, match=hint):
        SETTINGS.language_id(name)
