"""Keys of a paged KV cache without what all of them have in common."""

from pathlib import Path

import numpy as np
import pytest
from openvino import opset13 as ops

from ov_specdec.graph.paging import KEY, SINKS
from ov_specdec.graph.products import center_keys
from ov_specdec.models.devices import openvino_core
from ov_specdec.runner.base import Span
from ov_specdec.runner.paged import PagedModel
from tests.support.passes import paged
from tests.support.tiny import CONTEXT, VOCAB_SIZE, export, save_checkpoint

LAYERS = 2
F32 = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
EXACT, BY_TOKEN = {"KV_CACHE_PRECISION": "f32"}, {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"}
TOKENS = [7 * i % 290 for i in range(100)]


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


def logits(model, cache):
    compiled = openvino_core().compile_model(model, "CPU", {**F32, **cache})
    runner = PagedModel(compiled, max_length=CONTEXT, vocab_size=VOCAB_SIZE)
    return np.array(runner.forward([Span(runner.open(), TOKENS, len(TOKENS))])[0])


def attentions(model):
    return [node for node in model.get_ordered_ops() if "PagedAttention" in node.get_type_name()]


def test_a_model_stays_what_it_is(biased):
    expected = logits(paged(biased), EXACT)
    found = logits(centered(biased), EXACT)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_keys_with_biases_lose_less_by_token(biased):
    exact = logits(paged(biased), EXACT)
    as_they_are = np.abs(logits(paged(biased), BY_TOKEN) - exact).mean()
    assert np.abs(logits(centered(biased), BY_TOKEN) - exact).mean() < as_they_are / 4


def test_what_is_taken_off_is_the_bias_of_channels_that_rotate_slowly(biased):
    for attention in attentions(centered(biased)):
        center = attention.input_value(KEY).get_node().input_value(1).get_node().data
        np.testing.assert_allclose(center[0, [5, 11]], [200, -100], rtol=0.05)


def test_a_layer_with_attention_sinks_is_left_alone(biased):
    model = paged(biased)
    sinks = ops.constant(np.zeros((1, 4, 1, 1), np.float32))
    attentions(model)[0].input(SINKS).replace_source_output(sinks.output(0))
    assert center_keys(model) == LAYERS - 1
    kinds = [node.input_value(KEY).get_node().get_type_name() for node in attentions(model)]
    assert kinds == ["Reshape", "Subtract"]


def test_keys_without_biases_are_left_alone(tiny_pair):
    model = paged(tiny_pair[0])
    before = [node.get_name() for node in model.get_ordered_ops()]
    assert center_keys(model) == 0
    assert [node.get_name() for node in model.get_ordered_ops()] == before
