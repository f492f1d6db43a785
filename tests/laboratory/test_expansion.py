"""Expansion keeps a Llama's function: by torch on a miniature, and by its pieces."""

import dataclasses
import itertools

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ov_specdec.models.folder import read_json
from ov_specdec.models.locate import embedded_folder
from tests.benchmarks.expand import expanded_config
from tests.benchmarks.expansion.shape import LlamaShape, fit_shape, parse_size
from tests.benchmarks.expansion.weights import expand_weights, tensor_names

pytestmark = pytest.mark.deep

LIVE = LlamaShape(
    hidden=24, intermediate=40, layers=2, heads=4, kv_heads=2, head_dim=8, vocab=50, tied=False
)
WIDER = dataclasses.replace(LIVE, hidden=80, intermediate=104, heads=10, kv_heads=5)
MORE_NEURONS = dataclasses.replace(LIVE, intermediate=104)
MORE_HEADS = dataclasses.replace(LIVE, heads=6, kv_heads=3)
DEEPER = dataclasses.replace(LIVE, layers=5)
BOTH = dataclasses.replace(WIDER, layers=4)


def make_config(shape):
    return LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied,
        rms_norm_eps=1e-2,  # so large that it matters
    ).to_dict()


def random_model(shape):
    """A random model in f64, so that rounding cannot hide an error; its weights in f32."""
    torch.manual_seed(2)
    model = LlamaForCausalLM(LlamaConfig(**make_config(shape))).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight).mul_(0.3).add_(0.1).float())
    weights = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    return model, {name: weights[name] for name in tensor_names(shape)}


def load(config, weights):
    model = LlamaForCausalLM(LlamaConfig(**config)).double().eval()
    state = {name: torch.from_numpy(tensor).double() for name, tensor in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert unexpected == []
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model


def flat(parts):
    return dict(itertools.chain.from_iterable(part.items() for part in parts))


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize(
    "shape",
    [WIDER, MORE_HEADS, MORE_NEURONS, DEEPER, BOTH],
    ids=["wider", "more heads", "more neurons", "deeper", "both"],
)
def test_an_expanded_model_computes_the_same(shape, tied):
    live, wide = (dataclasses.replace(s, tied=tied) for s in (LIVE, shape))
    model, weights = random_model(live)
    config = expanded_config(make_config(live), live, wide)
    larger = load(config, flat(expand_weights(weights, live, wide)))
    ids = torch.arange(20)[None] * 7 % live.vocab
    with torch.no_grad():
        expected, logits = model(ids).logits, larger(ids).logits
    assert sum(p.numel() for p in larger.parameters()) == wide.num_parameters
    assert expected.std() > 0.1
    # The norms' factor is rounded to f32.
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", ["0.1B", "0.3B", "500M", "1B", "1.1B", "3000000000"])
def test_a_shape_comes_close_to_the_size_and_holds_the_model(size):
    live = LlamaShape.from_config(read_json(embedded_folder("main") / "config.json"))
    shape = fit_shape(live, parse_size(size))
    assert shape.num_parameters == pytest.approx(parse_size(size), rel=0.02)
    for field in ("hidden", "intermediate", "layers", "heads", "kv_heads"):
        assert getattr(shape, field) >= getattr(live, field)
    assert shape.heads * live.kv_heads == shape.kv_heads * live.heads
    assert shape.hidden % shape.heads == 0
