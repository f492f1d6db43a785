"""Products of queries, keys and values: fused, and with keys centered."""

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from ov_specdec.graph.paging import KEY, SINKS, paged_attentions
from ov_specdec.graph.products import center_keys, fuse_qkv
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig, openvino_core
from ov_specdec.models.exported import open_exported
from ov_specdec.models.locate import embedded_folder
from ov_specdec.runner.base import Span
from ov_specdec.runner.paged import PagedModel
from tests.support.passes import paged
from tests.support.tiny import export, save_checkpoint

VOCAB_SIZE = 300
PASSES = ((33, 1, 2), (1, 1, 1), (1, 5, 1), (2, 1, 9))
"""Tokens of three sequences in each pass."""

WIDTH, HEAD = 32, 16
ROWS = {"query": 4 * HEAD, "key": HEAD, "value": HEAD}


def count(model, kind="MatMul"):
    return sum(node.get_type_name() == kind for node in model.get_ops())


def logits(model, properties="exact", passes=PASSES, **settings):
    """Of passes over sequences. properties: of the model, or its precision."""
    if isinstance(properties, str):
        properties = RuntimeConfig(precision=properties).openvino_properties()
    compiled = openvino_core().compile_model(model, "CPU", properties)
    runner = PagedModel(compiled, max_length=128, vocab_size=VOCAB_SIZE, **settings)
    runner.limit(512)
    slots, rows = [runner.open() for _ in passes[0]], []
    for counts in passes:
        spans = [
            Span(slot, [7 * (slot.length + place) % 290 for place in range(size)], size)
            for slot, size in zip(slots, counts, strict=True)
        ]
        rows += [own.copy() for own in runner.forward(spans)]
    return np.concatenate(rows)


@pytest.mark.parametrize("name", [pytest.param("main", marks=pytest.mark.deep), "draft", "llama"])
def test_logits_are_bitwise_what_they_were(name, tiny_pair):
    folder = tiny_pair[0] if name == "llama" else embedded_folder(name)
    before, after = paged(folder), paged(folder)
    num_layers = fuse_qkv(after)
    assert num_layers > 0
    assert count(before) - count(after) == 2 * num_layers
    for precision in ("f32", "exact"):
        np.testing.assert_array_equal(logits(after, precision), logits(before, precision))


def test_a_paged_model_is_loaded_so_and_a_stateful_one_as_it_is():
    found = {}
    for kv in ("paged", "stateful"):
        source = open_exported(embedded_folder("draft"))
        before = count(source.model)
        load_model(source, RuntimeConfig(kv=kv))
        found[kv] = before - count(source.model)
    assert found == {"paged": 4, "stateful": 0}


def weights(rows, *, kind="u8", scales=True):
    """Weights of so many channels, each with a zero point and a scale, or one for all of them."""
    generator = np.random.default_rng(rows)
    kept = ops.constant(generator.integers(0, 15, (rows, WIDTH)), getattr(ov.Type, kind))
    zeros = ops.constant(generator.integers(0, 15, (rows, 1)), getattr(ov.Type, kind))
    scale = generator.random((rows, 1) if scales else (1, 1)).astype(np.float16)
    centered = ops.subtract(ops.convert(kept, "f16"), ops.convert(zeros, "f16"))
    return ops.convert(ops.multiply(centered, ops.constant(scale)), "f32")


def product(hidden, rows):
    return ops.matmul(hidden, weights(rows), False, True)


def layer(make=product, *, names=tuple(ROWS)):
    """A model of the products of one layer, each as heads. make: from hidden state and rows."""
    hidden = ops.parameter([-1, 1, WIDTH], np.float32, name="hidden")
    shape = ops.constant([0, -1, 1, HEAD])
    heads = [ops.reshape(make(hidden, ROWS[name]), shape, special_zero=True) for name in names]
    return ov.Model([ops.result(own) for own in heads], [hidden], "made by hand")


def run(model):
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    hidden = np.random.default_rng(0).random((3, 1, WIDTH), np.float32)
    results = openvino_core().compile_model(model, "CPU", exact)(hidden)
    return [results[port].copy() for port in range(len(model.outputs))]


def test_each_gets_its_own_channels():
    model = layer()
    before = run(model)
    assert fuse_qkv(model) == 1
    assert count(model) == 1
    for own, expected in zip(run(model), before, strict=True):
        np.testing.assert_array_equal(own, expected)


def biased(hidden, rows):
    return ops.add(product(hidden, rows), ops.constant(np.ones(rows, np.float32)))


def of_its_own(hidden, rows):
    return product(ops.relu(hidden), rows)


def by_column(hidden, rows):
    turned = ops.constant(np.ones((WIDTH, rows), np.float32))
    return ops.matmul(hidden, turned, False, False)


def scaled_together(hidden, rows):
    return ops.matmul(hidden, weights(rows, scales=False), False, True)


def of_four_bits(hidden, rows):
    return ops.matmul(hidden, weights(rows, kind="u4"), False, True)


def of_several_types(hidden, rows):
    kind = "i8" if rows == ROWS["query"] else "u8"
    return ops.matmul(hidden, weights(rows, kind=kind), False, True)


@pytest.mark.parametrize(
    "make", [biased, of_its_own, by_column, scaled_together, of_four_bits, of_several_types]
)
def test_products_that_are_not_alike_or_would_lose_by_it_are_left_alone(make):
    model = layer(make, names=["query", "key"])
    assert fuse_qkv(model) == 0
    assert count(model) == 2


F32 = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
EXACT, BY_TOKEN = {"KV_CACHE_PRECISION": "f32"}, {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"}
LAYERS = 2


def make_biased(folder):
    """A tiny Qwen2 whose keys have biases as real ones have, in channels that rotate slowly."""
    import torch
    from transformers import AutoModelForCausalLM

    save_checkpoint("qwen2", folder / "checkpoint")
    rope = {"rope_type": "default", "rope_theta": 1e6}
    model = AutoModelForCausalLM.from_pretrained(folder / "checkpoint", rope_parameters=rope)
    with torch.no_grad():
        for layer in model.model.layers:
            bias = layer.self_attn.k_proj.bias.view(LAYERS, -1)
            bias[:, [bias.shape[1] // 2 - 1, -1]] = torch.tensor([200.0, -100.0])
    model.save_pretrained(folder / "checkpoint")
    export(folder / "checkpoint", folder / "model")


@pytest.fixture(scope="module")
def biased(shelf, tmp_path_factory):
    target = tmp_path_factory.mktemp("biased") / "all"
    return shelf.copy("qwen2-biased", make_biased, target, Path(__file__)) / "model"


def centered(folder):
    model = paged(folder)
    assert center_keys(model) == LAYERS
    return model


def logits_of_text(model, cache):
    return logits(model, {**F32, **cache}, passes=((100,),))


def test_a_model_stays_what_it_is(biased):
    expected = logits_of_text(paged(biased), EXACT)
    found = logits_of_text(centered(biased), EXACT)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_keys_with_biases_lose_less_by_token(biased):
    exact = logits_of_text(paged(biased), EXACT)
    as_they_are = np.abs(logits_of_text(paged(biased), BY_TOKEN) - exact).mean()
    assert np.abs(logits_of_text(centered(biased), BY_TOKEN) - exact).mean() < as_they_are / 4


def test_what_is_taken_off_is_the_bias_of_channels_that_rotate_slowly(biased):
    for attention in paged_attentions(centered(biased)):
        center = attention.input_value(KEY).get_node().input_value(1).get_node().data
        np.testing.assert_allclose(center[0, [5, 11]], [200, -100], rtol=0.05)


def test_a_layer_with_attention_sinks_is_left_alone(biased):
    model = paged(biased)
    sinks = ops.constant(np.zeros((1, 4, 1, 1), np.float32))
    paged_attentions(model)[0].input(SINKS).replace_source_output(sinks.output(0))
    assert center_keys(model) == LAYERS - 1
    kinds = [node.input_value(KEY).get_node().get_type_name() for node in paged_attentions(model)]
    assert kinds == ["Reshape", "Subtract"]


def test_keys_without_biases_are_left_alone(tiny_pair):
    model = paged(tiny_pair[0])
    before = [node.get_name() for node in model.get_ordered_ops()]
    assert center_keys(model) == 0
    assert [node.get_name() for node in model.get_ordered_ops()] == before
