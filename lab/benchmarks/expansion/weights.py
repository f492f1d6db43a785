"""The weights of a Llama in a larger one that computes the same: pure numpy.

The hidden state of the larger model is that of the live one followed by an unused part, which is
zero from the embedding to the last norm. So whatever reads the unused part may be random, and so
may whatever is multiplied by a head or a neuron that gives zero. What writes must write zero there:

                        live columns    other columns
    live rows           live            random
    other rows of
      q, k, gate        random          random          finite, and without effect
      v, up             zero            random          so extra heads and neurons give zero
      o, down           zero            random          so the unused part stays zero

A layer beyond the live ones has no live heads and neurons, and adds zero by the same table.
Random, not zero: tensors that are alike may be stored once, and would then be read from a cache.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lab.benchmarks.expansion.shape import LlamaShape

Array = NDArray[np.float32]
Weights = Mapping[str, Array]
"""Tensors by the names that transformers gives them; matrices are [outputs, inputs]."""

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FINAL_NORM = "model.norm.weight"
NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight")
FREE = ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "mlp.gate_proj.weight")
"""Matrices whose other rows may be random in the live columns."""


def expand_weights(
    weights: Weights, live: LlamaShape, wide: LlamaShape
) -> Iterator[dict[str, Array]]:
    """All tensors of the larger model, in parts: what is outside the layers, then each layer.

    `wide` is at least as large as `live` in every size, with as many heads to a KV head. The norms
    fit an epsilon of `expanded_epsilon`.
    """
    ends = {
        EMBEDDING: _padded(weights[EMBEDDING], wide.hidden),
        FINAL_NORM: _norm(FINAL_NORM, weights[FINAL_NORM], wide.hidden),
    }
    if not wide.tied:
        ends[HEAD] = _corner(HEAD, weights[HEAD], (wide.vocab, wide.hidden))
    yield ends
    for index in range(wide.layers):
        yield _layer(f"model.layers.{index}.", weights, live, wide)


def expanded_epsilon(epsilon: float, live: LlamaShape, wide: LlamaShape) -> float:
    """Zeros lower the mean square that epsilon is added to, so it is lowered as much."""
    return epsilon * live.hidden / wide.hidden


def tensor_names(shape: LlamaShape) -> list[str]:
    """The names of all tensors of a Llama."""
    layers = [
        f"model.layers.{index}.{m}" for index in range(shape.layers) for m in _matrices(shape)
    ]
    return [EMBEDDING, *([] if shape.tied else [HEAD]), *norm_names(shape), *layers]


def norm_names(shape: LlamaShape) -> list[str]:
    """Those of them that are the weights of norms."""
    layers = [f"model.layers.{index}.{norm}" for index in range(shape.layers) for norm in NORMS]
    return [*layers, FINAL_NORM]


def _matrices(shape: LlamaShape) -> dict[str, tuple[int, int]]:
    """The [outputs, inputs] of each matrix of a layer."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "self_attn.q_proj.weight": (queries, shape.hidden),
        "self_attn.k_proj.weight": (keys, shape.hidden),
        "self_attn.v_proj.weight": (keys, shape.hidden),
        "self_attn.o_proj.weight": (shape.hidden, queries),
        "mlp.gate_proj.weight": (shape.intermediate, shape.hidden),
        "mlp.up_proj.weight": (shape.intermediate, shape.hidden),
        "mlp.down_proj.weight": (shape.hidden, shape.intermediate),
    }


def _layer(prefix: str, weights: Weights, live: LlamaShape, wide: LlamaShape) -> dict[str, Array]:
    """A layer of the larger model; beyond the live model's layers, nothing in it is live."""
    if prefix + NORMS[0] not in weights:
        live = replace(live, heads=0, kv_heads=0, intermediate=0)
    layer = {}
    for name in NORMS:
        norm = weights.get(prefix + name, np.ones(live.hidden, np.float32))
        layer[prefix + name] = _norm(prefix + name, norm, wide.hidden)
    live_shapes = _matrices(live)
    for name, shape in _matrices(wide).items():
        rows, columns = live_shapes[name]
        matrix = weights.get(prefix + name, np.zeros((rows, columns), np.float32))
        expanded = _corner(prefix + name, matrix, shape)
        if name not in FREE:
            expanded[rows:, :columns] = 0
        layer[prefix + name] = expanded
    return layer


def _corner(name: str, matrix: Array, shape: tuple[int, int]) -> Array:
    """`matrix` in the upper left corner of a random one.

    The random part of a live row stays between the row's least and greatest weight. So the row's
    int8 scale and zero point stay as they are, and quantization finds the same integers again.
    """
    rows, columns = matrix.shape
    bound = np.float32((3 / shape[1]) ** 0.5)  # a standard deviation of 1 / sqrt(inputs)
    low, high = np.full((2, shape[0], 1), bound, np.float32)
    low *= -1
    used = np.flatnonzero(matrix.any(axis=1))
    low[used, 0] = matrix[used].min(axis=1, initial=0)
    high[used, 0] = matrix[used].max(axis=1, initial=0)
    expanded = _generator(name).random(shape, np.float32)
    expanded *= high - low
    expanded += low
    expanded[:rows, :columns] = matrix
    return expanded


def _padded(matrix: Array, columns: int) -> Array:
    return np.pad(matrix, ((0, 0), (0, columns - matrix.shape[1])))


def _norm(name: str, norm: Array, hidden: int) -> Array:
    """The weights of a norm, scaled down as the mean square of a padded hidden state is smaller."""
    expanded = _generator(name).uniform(0.5, 1.5, hidden)
    expanded[: len(norm)] = norm
    expanded *= (len(norm) / hidden) ** 0.5
    return expanded.astype(np.float32)


def _generator(name: str) -> np.random.Generator:
    """A generator for one tensor: the same in each run, and another for each name."""
    return np.random.default_rng(zlib.crc32(name.encode()))
