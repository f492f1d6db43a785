"""Centers the keys of a paged KV cache, to reduce the loss of quantization by token."""

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from ov_specdec.graph.paging import before

KEYS, SINKS = 1, 20
"""Indices among the inputs of OpenVINO's paged attention; sinks may be empty."""

POSITIONS = np.arange(0, 4096, 61)
"""Positions over which keys are averaged; channels with fast RoPE rotation cancel out."""


def center_keys(model: ov.Model) -> int:
    """Subtract the effect of biases from the keys of a paged model, in place; the changed layers.

    A constant in all keys of a head adds the same to all scores of a query, and softmax cancels it.
    But if a token's keys range from -300 to 300, as with the biases of Qwen2, u8 has steps of 2 for
    all of its channels.

    The subtracted center is the mean over positions of the keys of a zero product: the bias in
    channels with slow RoPE rotation, and almost 0 in the others. Layers without a bias are
    unchanged, and so are layers with attention sinks, whose softmax has another term.

    SmolLM2-135M as a Qwen2 with biases of up to 300 in its first layer and its last, in bf16: KL
    from f32 by token 0.0157, centered 0.0057, by channel 0.0053
    (`tests/benchmarks/key_quantization.py`).
    """
    clone = model.clone()  # held, since its ports do not hold it
    layers, zeroed = _keys(model), _keys(clone)
    for keys in zeroed:
        behind = list(before(keys.get_source_output().get_node(), ("MatMul", "Cos", "Sin")))
        for product in (node for node in behind if node.get_type_name() == "MatMul"):
            shape = product.get_output_partial_shape(0)
            sizes = [len(POSITIONS) if axis.is_dynamic else axis.get_length() for axis in shape]
            zeros = ops.constant(np.zeros(sizes, np.float32))
            for reader in product.output(0).get_target_inputs():
                reader.replace_source_output(zeros.output(0))
    centers = [_center(keys) for keys in zeroed]
    for keys, center in zip(layers, centers, strict=True):
        if center is not None:
            centered = ops.subtract(keys.get_source_output(), ops.constant(center))
            keys.replace_source_output(centered.output(0))
    model.validate_nodes_and_infer_types()
    return sum(center is not None for center in centers)


def _keys(model: ov.Model) -> list[ov.Input]:
    """The key inputs of paged attentions without sinks, [tokens, width], in order."""
    return [
        node.input(KEYS)
        for node in model.get_ordered_ops()
        if "PagedAttention" in node.get_type_name() and node.get_input_partial_shape(SINKS)[0] == 0
    ]


def _center(keys: ov.Input) -> NDArray[np.float32] | None:
    """The mean of the keys of zero products; None if it is zero or unknown."""
    behind = before(keys.get_source_output().get_node(), ())
    inputs = [node for node in behind if node.get_type_name() == "Parameter"]
    values = {"position_ids": POSITIONS, "input_ids": np.zeros_like(POSITIONS)}
    rotated = ov.Tensor(ov.Type.f32, ov.Shape([0]))
    try:
        names = [min(node.output(0).names & values.keys(), default="") for node in inputs]
        tensors = [ov.Tensor(values[name]) for name in names]
        part = ov.Model([keys.get_source_output()], inputs, "keys of zeros")
        part.evaluate([rotated], tensors)
    except (KeyError, RuntimeError):  # an architecture with other operations before keys
        return None
    center: NDArray[np.float32] = rotated.data.mean(axis=0, keepdims=True)
    return center if center.any() and np.isfinite(center).all() else None
