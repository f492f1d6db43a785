"""What a runner promises, on both KV backends with a real IR."""

import numpy as np
import openvino as ov
import psutil
import pytest

from ov_specdec import SessionError
from ov_specdec.errors import CacheFullError
from ov_specdec.graph.paging import select_rows, to_paged
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import EXACT, RuntimeConfig
from ov_specdec.models.exported import open_exported
from ov_specdec.runner.base import Runner, Slot, Span
from ov_specdec.runner.paged import PagedModel
from tests.support.passes import NUM_IDS, tokens

VOCAB_SIZE = NUM_IDS
CLOSE = {"rtol": 0, "atol": 1e-4}


@pytest.fixture(scope="module", params=["paged", "stateful", "stateful, trimmed at once"])
def model(request, tiny_pair):
    kv = request.param.partition(",")[0]
    config = RuntimeConfig(
        kv=kv, precision="exact", max_masked_tokens=0 if "," in request.param else None
    )
    return load_model(open_exported(tiny_pair[0]), config).runner


@pytest.fixture
def slot(model):
    slot = model.open()
    yield slot
    slot.free()


def forward(model: Runner, slot: Slot, text, num_rows=None) -> np.ndarray:
    """Append a text; the logits of its last tokens, or of all."""
    rows = len(text) if num_rows is None else num_rows
    return model.forward([Span(slot, text, rows)])[0]


def fresh(model: Runner, slot: Slot, text) -> np.ndarray:
    """Logits of every token of a text, on an empty cache."""
    slot.free()
    return forward(model, slot, text).copy()


@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_a_last_layer_that_computes_all_rows_gives_those_that_are_wanted(
    tiny_pair, kv, monkeypatch
):
    monkeypatch.setattr("ov_specdec.models.prepare.select_rows", lambda *_, **__: False)
    config = RuntimeConfig(kv=kv, precision="exact")
    model = load_model(open_exported(tiny_pair[0]), config).runner
    slot, text = model.open(), tokens(7)
    last = forward(model, slot, text, 1).copy()
    np.testing.assert_allclose(last, fresh(model, slot, text)[-1:], **CLOSE)


def test_what_a_runner_cannot_do_is_refused_and_changes_nothing(model, slot):
    forward(model, slot, tokens(250))
    with pytest.raises(SessionError, match="holds 250 of 256 tokens: no room for 7"):
        forward(model, slot, tokens(7), 1)
    assert slot.length == 250
    assert forward(model, slot, tokens(6)).shape == (6, VOCAB_SIZE)


def paged_model(folder, max_sequences=1):
    """A compiled paged model, and room for so many sequences of the tiny models' context."""
    source = open_exported(folder)
    to_paged(source.model)
    select_rows(source.model, axis=0)
    compiled = ov.Core().compile_model(source.model, "CPU", EXACT)
    model = PagedModel(compiled, max_length=256, vocab_size=VOCAB_SIZE)
    model.limit(256 * max_sequences)
    return model


def test_caches_of_any_size_take_memory_only_as_they_are_written_to(tiny_pair):
    model = paged_model(tiny_pair[0])
    resident = psutil.Process().memory_info().rss
    model.limit(2 * 10**9 // model.bytes_per_token)
    forward(model, model.open(), tokens(256))
    assert psutil.Process().memory_info().rss - resident < 10**8


def test_a_limit_that_no_memory_is_enough_for_is_refused(tiny_pair):
    model = paged_model(tiny_pair[0])
    with pytest.raises(CacheFullError, match=r"no memory for .* lower kv_cache_size"):
        model.limit(10**18 // model.bytes_per_token)


def test_a_pass_that_cannot_be_run_leaves_its_sequences_as_they_were(tiny_pair):
    model = paged_model(tiny_pair[0], max_sequences=1)
    first, second = model.open(), model.open()
    forward(model, first, tokens(100))
    with pytest.raises(CacheFullError, match="blocks of the KV cache are in use"):
        model.forward([Span(first, tokens(20), 1), Span(second, tokens(200), 1)])
    assert (first.length, second.length) == (100, 0)
    other = paged_model(tiny_pair[0], 1).open()
    with pytest.raises(SessionError, match="another model"):
        model.forward([Span(first, [1], 1), Span(other, [1], 1)])
    assert first.length == 100
