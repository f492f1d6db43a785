"""Decoders that attend to an encoder's output: their KV states, their sources, the whole loop."""

import numpy as np
import pytest

from ov_specdec import ModelError, OptionError, SessionError
from ov_specdec.cache.slot import EncoderInput
from ov_specdec.models.compile import load_model, load_models
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.exported import open_exported
from ov_specdec.runner.base import Span
from tests.support.tiny_encoder_decoder import SOURCES, START, TEXT
from tests.support.tiny_whisper import WINDOW

EXACT = RuntimeConfig(precision="exact")


def source_of(architecture, index, namespace=None):
    """One of two sources, with start tokens that are equal."""
    if architecture == "whisper":
        features = np.random.default_rng(index).normal(size=(1, 80, 100 * WINDOW))
        return EncoderInput(features.astype(np.float32), namespace)
    return EncoderInput(np.array([SOURCES[index]]), namespace)


@pytest.fixture(
    scope="module",
    params=["t5", "whisper", *(pytest.param(name, marks=pytest.mark.deep) for name in TEXT[1:])],
)
def architecture(request):
    return request.param


def load(folder):
    return load_model(open_exported(folder), EXACT).runner


@pytest.fixture(scope="module")
def folder(architecture, encoder_decoder, whisper):
    return (whisper if architecture == "whisper" else encoder_decoder(architecture)).main


@pytest.fixture(scope="module")
def model(folder):
    return load(folder)


@pytest.fixture(scope="module")
def bart(encoder_decoder):
    return load(encoder_decoder("bart").main)


def load_as_preferred(folder):
    """In the precision that OpenVINO prefers here, such as bf16."""
    return load_model(open_exported(folder), RuntimeConfig()).runner


def forward(model, slot, text, num_rows=None):
    """Append a text; the logits of its last tokens, or of all."""
    [logits] = model.forward([Span(slot, text, num_rows or len(text))])
    return logits.copy()


def test_after_a_trim_it_is_as_if_never_appended_bit_for_bit(architecture, model):
    source = source_of(architecture, 0)
    slot = model.open(source)
    forward(model, slot, [START, 5, 6, 7])
    forward(model, slot, [9, 10, 11])
    slot.rollback(4)
    actual = forward(model, slot, [20, 21])
    other = model.open(source_of(architecture, 0, "another namespace"))
    forward(model, other, [START, 5, 6, 7])
    np.testing.assert_array_equal(actual, forward(model, other, [20, 21]))


def test_what_cannot_be_run_is_refused(bart, encoder_decoder, tiny_pair):
    with pytest.raises(SessionError, match="without a source"):
        bart.open("a namespace")
    source = open_exported(encoder_decoder("bart").main)
    for given in ({"kv": "paged"}, {"max_masked_tokens": 8}):
        with pytest.raises(OptionError, match=r"=('paged'|8) can"):
            load_model(source, RuntimeConfig(**given))
    source, device = open_exported(tiny_pair[0]), RuntimeConfig(encoder_device="CPU")
    with pytest.raises(OptionError, match="encoder_device='CPU' has no effect"):
        load_model(source, device)


def test_a_draft_without_an_encoder_shares_the_mains(encoder_decoder, tmp_path):
    made = encoder_decoder("bart")
    for file in made.draft.iterdir():
        if "encoder_model" not in file.name.replace("decoder_model", ""):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    sources = [open_exported(folder) for folder in (made.main, tmp_path)]
    main, draft = load_models([(source, EXACT) for source in sources])
    assert main.runner.encoder is draft.runner.encoder
    with pytest.raises(ModelError, match=r"openvino_encoder_model.xml is missing"):
        load_model(sources[1], EXACT)


def test_each_source_is_read_where_it_lies_now(architecture, folder):
    """In bf16 a plugin has read the tensor that an earlier source was in."""
    text = [START, 21, 22]
    model = load_as_preferred(folder)
    for index in (0, 1, 0, 1):
        source = source_of(architecture, index)
        fresh = load_as_preferred(folder)
        expected = forward(fresh, fresh.open(source), text)
        assert np.array_equal(forward(model, model.open(source), text), expected)
