"""Queries, keys and values by one product: which are fused, and that logits stay as they were."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from ov_specdec.graph.products import fuse_qkv
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import find_device, openvino_core
from ov_specdec.models.locate import embedded_folder
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.models.source import open_source
from ov_specdec.runner.base import Span
from ov_specdec.runner.paged import PagedModel
from tests.support.passes import paged

VOCAB_SIZE = 300
SPANS = (33, 1, 2, 5, 1)
"""Tokens of passes, one after the other."""

WIDTH, HEAD = 32, 16
ROWS = {"query": 4 * HEAD, "key": HEAD, "value": HEAD}


def num_products(model):
    return sum(node.get_type_name() == "MatMul" for node in model.get_ops())


def logits(model, precision):
    cpu = find_device("CPU")
    properties = RuntimeConfig(precision=precision).properties_for(cpu)
    compiled = openvino_core().compile_model(model, "CPU", properties)
    runner = PagedModel(compiled, max_length=128, vocab_size=VOCAB_SIZE)
    slot, rows = runner.open(), []
    for count in SPANS:
        tokens = [7 * (slot.length + place) % 290 for place in range(count)]
        rows.append(runner.forward([Span(slot, tokens, count)])[0].copy())
    return np.concatenate(rows)


@pytest.mark.parametrize("name", [pytest.param("main", marks=pytest.mark.deep), "draft", "llama"])
def test_logits_are_bitwise_what_they_were(name, tiny_pair):
    folder = tiny_pair[0] if name == "llama" else embedded_folder(name)
    before, after = paged(folder), paged(folder)
    num_layers = fuse_qkv(after)
    assert num_layers > 0
    assert num_products(before) - num_products(after) == 2 * num_layers
    for precision in ("f32", "exact"):
        np.testing.assert_array_equal(logits(after, precision), logits(before, precision))


def test_a_paged_model_is_loaded_so_and_a_stateful_one_as_it_is():
    found = {}
    for kv in ("paged", "stateful"):
        source = open_source(embedded_folder("draft"))
        before = num_products(source.model)
        load_model(source, RuntimeConfig(kv=kv))
        found[kv] = before - num_products(source.model)
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
    assert num_products(model) == 1
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
    assert num_products(model) == 2
