"""Decoders that attend to an encoder's output: their KV states, their sources, the whole loop."""

from functools import partial

import numpy as np
import pytest

from ov_specdec import ModelError, OptionError, SessionError
from ov_specdec.cache.slot import Source
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.models.compile import load_model, load_models
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.models.source import open_source
from ov_specdec.planning.draft_length import ConstantLength
from ov_specdec.runner.base import Span
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.samplers import GreedySampler, RandomSampler
from ov_specdec.sampling.warpers import LogitsWarper
from tests.support.enumeration import enumerate_outcomes
from tests.support.flaky import Flaky, FlakyRequest, make_flaky
from tests.support.running import rounds, sequence
from tests.support.tiny_encoder_decoder import NUM_IDS, NUM_TOKENS, SOURCES, START, TEXT, features

EXACT = RuntimeConfig(precision="exact")


def source_of(architecture, index, namespace=None):
    """One of two sources, with start tokens that are equal."""
    if architecture == "whisper":
        return Source(features(index), namespace)
    return Source(np.array([SOURCES[index]]), namespace)


@pytest.fixture(
    scope="module",
    params=["t5", "whisper", *(pytest.param(name, marks=pytest.mark.deep) for name in TEXT[1:])],
)
def architecture(request):
    return request.param


def load(folder):
    return load_model(open_source(folder), EXACT, vocab_size=NUM_IDS).runner


@pytest.fixture(scope="module")
def model(architecture, encoder_decoder):
    return load(encoder_decoder(architecture).main)


@pytest.fixture(scope="module")
def bart(encoder_decoder):
    return load(encoder_decoder("bart").main)


def load_as_preferred(folder):
    """In the precision that OpenVINO prefers here, such as bf16."""
    return load_model(open_source(folder), RuntimeConfig(), vocab_size=NUM_IDS).runner


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


def test_sources_with_equal_start_tokens_are_told_apart(architecture, model):
    expected = [
        forward(model, model.open(source_of(architecture, i, object())), [START]) for i in (0, 1)
    ]
    assert not np.allclose(*expected)
    for i in (0, 1, 1, 0):
        cache = CachedSequence(model, source_of(architecture, i))
        np.testing.assert_array_equal(alone(cache.advance([START])).logits, expected[i])
        cache.free()


def test_a_source_is_encoded_once_and_its_tokens_are_found(architecture, model):
    first = CachedSequence(model, source_of(architecture, 0))
    expected = alone(first.advance([START, 5, 6, 7])).logits.copy()
    first.free()
    seconds = model.encoder.seconds
    again = CachedSequence(model, source_of(architecture, 0))
    done = alone(again.advance([START, 5, 6, 7]))
    assert (done.num_cached, done.num_tokens) == (3, 1)
    np.testing.assert_allclose(done.logits, expected, rtol=0, atol=1e-5)
    again.discard()
    empty = CachedSequence(model, source_of(architecture, 0))
    assert alone(empty.advance([START])).num_cached == 0
    assert model.encoder.seconds == seconds


def test_a_sequence_that_begins_takes_the_states_over(bart):
    first, second = (CachedSequence(bart, source_of("bart", i)) for i in (0, 1))
    expected = alone(first.advance([START, 5, 6])).logits.copy()
    alone(second.advance([START]))
    assert first._slot.length == 0
    done = alone(first.advance([START, 5, 6, 7], num_rows=2))
    assert done.num_tokens == 4
    np.testing.assert_allclose(done.logits[0], expected[0], rtol=0, atol=1e-5)


def test_a_failed_pass_empties_the_sequence_and_takes_a_new_request(encoder_decoder):
    model = load(encoder_decoder("bart").main)
    flaky = make_flaky(model)
    cache = CachedSequence(model, source_of("bart", 0))
    expected, request = alone(cache.advance([START, 5, 6])).logits.copy(), model._request
    flaky.fails_in = 0
    with pytest.raises(RuntimeError, match="the device is gone"):
        alone(cache.advance([START, 5, 6, 7]))
    assert (cache._slot.length, model._request is request) == (0, False)
    done = alone(cache.advance([START, 5, 6]))
    assert done.num_tokens == 3
    np.testing.assert_array_equal(done.logits, expected)


def test_an_encoder_that_has_failed_is_asked_again(bart, encoder_decoder):
    model, flaky = load(encoder_decoder("bart").main), Flaky(None)
    request = FlakyRequest(model.encoder._compiled.create_infer_request(), flaky)
    model.encoder._request, flaky.fails_in = request, 0
    cache = CachedSequence(model, source_of("bart", 0))
    with pytest.raises(RuntimeError, match="the device is gone"):
        alone(cache.advance([START]))
    assert cache._slot.length == 0
    logits = alone(cache.advance([START])).logits
    assert model.encoder._request is not request
    expected = alone(CachedSequence(bart, source_of("bart", 0)).advance([START])).logits
    np.testing.assert_array_equal(logits, expected)


def test_what_cannot_be_run_is_refused(bart, encoder_decoder):
    with pytest.raises(SessionError, match="without a source"):
        bart.open("a namespace")
    slots = [bart.open(source_of("bart", i)) for i in (0, 1)]
    with pytest.raises(SessionError, match="over 2 sequences"):
        bart.forward([Span(slot, [START], 1) for slot in slots])
    other = load(encoder_decoder("bart").main).open(source_of("bart", 0))
    with pytest.raises(SessionError, match="another model"):
        bart.forward([Span(other, [START], 1)])
    with pytest.raises(SessionError, match="no room for 129 more"):
        forward(bart, slots[0], [START] * 129)


def speculate(main, source, draft=None, length=3):
    """The tokens of a source, and how many draft tokens were drafted and accepted."""
    drafter = None
    if draft is not None:
        drafter = ModelDrafter(CachedSequence(draft, source), GreedySampler())
    policy = ConstantLength(length if draft else 0)
    cache = CachedSequence(main, source)
    text = sequence(cache, [START], 1 + NUM_TOKENS, drafter, policy)
    stats = [round_.stats for round_ in rounds(text)]
    counts = (sum(getattr(s, name) for s in stats) for name in ("num_drafted", "num_accepted"))
    return text.tokens[1:], *counts


@pytest.mark.parametrize("shares", [False, True])
def test_speculative_is_plain_is_torchs(architecture, encoder_decoder, shares):
    made = encoder_decoder(architecture)
    folders = made.main, made.sharing_draft if shares else made.draft
    loaded = load_models([(open_source(folder), EXACT, NUM_IDS) for folder in folders])
    main, draft = (model.runner for model in loaded)
    assert (main.encoder is draft.encoder) == shares
    total = accepted = 0
    for i, expected in enumerate(made.expected):
        source = source_of(architecture, i)
        assert speculate(main, source)[0] == expected
        tokens, num_drafted, num_accepted = speculate(main, source, draft)
        assert tokens == expected
        total, accepted = total + num_drafted, accepted + num_accepted
    assert 0 < accepted < total, "nothing was rejected, or nothing accepted"


def test_drawn_outputs_have_the_main_models_distribution(encoder_decoder):
    made = encoder_decoder("t5")
    folders = made.main, made.draft
    loaded = load_models([(open_source(folder), EXACT, NUM_IDS) for folder in folders])
    source, warper = source_of("t5", 0), LogitsWarper(temperature=2.0, top_k=2)

    def draw(length, random):
        sampler = RandomSampler((), warper, random)
        main, draft = (CachedSequence(model.runner, source) for model in loaded)
        drafter, policy = ModelDrafter(draft, sampler), ConstantLength(length)
        text = sequence(main, [START], 4, drafter, policy, sampler=sampler)
        list(rounds(text))
        return tuple(text.tokens)

    plain, drafted = (enumerate_outcomes(partial(draw, length)) for length in (0, 2))
    assert len(plain) == 8
    assert drafted == pytest.approx(plain, abs=1e-5)


def test_a_draft_without_an_encoder_shares_the_mains(encoder_decoder, tmp_path):
    made = encoder_decoder("bart")
    for file in made.sharing_draft.iterdir():
        if "encoder_model" not in file.name.replace("decoder_model", ""):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    sources = [open_source(folder) for folder in (made.main, tmp_path)]
    main, draft = load_models([(source, EXACT, NUM_IDS) for source in sources])
    assert main.runner.encoder is draft.runner.encoder
    with pytest.raises(ModelError, match=r"openvino_encoder_model.xml is missing"):
        load_model(sources[1], EXACT, vocab_size=NUM_IDS)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"kv": "paged"}, "kv='paged' cannot"), ({"max_masked_tokens": 8}, "max_masked_tokens=8 can")],
)
def test_what_such_a_decoder_cannot_do_is_an_error(encoder_decoder, given, message):
    source = open_source(encoder_decoder("bart").main)
    with pytest.raises(OptionError, match=message):
        load_model(source, RuntimeConfig(**given), vocab_size=NUM_IDS)


def test_an_encoder_device_is_for_encoders(tiny_pair):
    with pytest.raises(OptionError, match="encoder_device='CPU' has no effect"):
        load_model(open_source(tiny_pair[0]), RuntimeConfig(encoder_device="CPU"), vocab_size=290)


def test_each_source_is_read_where_it_lies_now(architecture, encoder_decoder):
    """In bf16 a plugin has read the tensor that an earlier source was in."""
    folder = encoder_decoder(architecture).main
    text = [START, 21, 22]
    model = load_as_preferred(folder)
    for index in (0, 1, 0, 1):
        source = source_of(architecture, index)
        fresh = load_as_preferred(folder)
        expected = forward(fresh, fresh.open(source), text)
        assert np.array_equal(forward(model, model.open(source), text), expected)
