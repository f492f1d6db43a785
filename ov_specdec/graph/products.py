"""Matrix products: queries, keys and values of a paged model, and the logits of some tokens."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from ov_specdec.errors import OptionError
from ov_specdec.graph.paging import (
    KEY,
    POSITION_IDS,
    SINKS,
    before,
    last_product,
    paged_attentions,
)

HEADS = "Reshape"
"""Operations after the products of queries, keys and values. A bias or an activation is not among
them: the product itself computes it, and after a split it would not.
"""

READABLE = ("u8", "i8", "f16", "f32")
"""Types of weights that numpy has."""

OUTSIDE = np.float32(-60_000)
"""The logit of tokens that are not kept: probability 0, and within the range of f16."""

AVERAGED = np.arange(0, 4096, 61)
"""Positions over which keys are averaged; channels with fast RoPE rotation cancel out."""


def fuse_qkv(model: ov.Model) -> int:
    """Fuse queries, keys and values of a model, in place. Returns the number of changed layers.

    In a pass over few tokens of a small model, each product quantizes the hidden state again, and
    is prepared again after a pass over another number of tokens. Sums of channels keep their order,
    so the logits are bitwise the same. Passes over two tokens took 3 to 9 % less time on a Zen 4,
    and 5 to 12 % less after a pass over three.
    """
    alike = defaultdict(list)
    for node in model.get_ordered_ops():
        if form := _form(node):
            alike[form].append(node)
    layers = [products for products in alike.values() if len(products) > 1]
    for products in layers:
        _fuse(products)
    model.validate_nodes_and_infer_types()
    return len(layers)


def constant_ports(port: ov.Input) -> Iterator[ov.Input]:
    """The ports that read the weights behind a port, and their decompression."""
    node = port.get_source_output().get_node()
    decompresses = node.get_type_name() in ("Convert", "Subtract", "Multiply")
    if decompresses and len(node.output(0).get_target_inputs()) == 1:
        for value in node.inputs():
            yield from constant_ports(value)
    else:
        yield port


def _num_channels(product: ov.Node) -> int:
    """Output channels of a product; 0 if its weights are not a matrix."""
    weights = product.get_input_partial_shape(1)
    return int(weights[0].get_length()) if weights.is_static and len(weights) == 2 else 0


def _form(node: ov.Node) -> tuple[object, ...] | None:
    """What products that can be fused have in common; None for any other node.

    These give queries, keys or values of one hidden state, by weights that are constants with a row
    for each channel, of types that numpy has.
    """
    if node.get_type_name() != "MatMul":
        return None
    attributes, hidden = node.get_attributes(), node.input_value(0)
    readers = {reader.get_node().get_type_name() for reader in node.output(0).get_target_inputs()}
    if attributes["transpose_a"] or not attributes["transpose_b"] or not readers <= {HEADS}:
        return None
    form: list[object] = [hidden.get_node().get_name(), hidden.get_index()]
    for port in constant_ports(node.input(1)):
        if port.get_source_output().get_node().get_type_name() != "Constant":
            return None
        kind, shape = port.get_element_type().get_type_name(), [*port.get_shape()]
        if kind not in READABLE or shape[:1] != [_num_channels(node)]:
            return None
        form.append((port.get_node().get_type_name(), port.get_index(), kind, *shape[1:]))
    return tuple(form)


def _fuse(products: Sequence[ov.Node]) -> None:
    first = products[0]
    sizes = [_num_channels(product) for product in products]
    readers = [product.output(0).get_target_inputs() for product in products]
    for ports in zip(*(constant_ports(product.input(1)) for product in products), strict=True):
        rows = [port.get_source_output().get_node().get_data() for port in ports]
        ports[0].replace_source_output(ops.constant(np.concatenate(rows)).output(0))
    # Before its readers are validated, whose shapes fit single products.
    _infer_shapes(first.input_value(1).get_node())
    first.validate_and_infer_types()
    split = ops.variadic_split(first, ops.constant(-1), ops.constant(sizes))
    for output, own in zip(split.outputs(), readers, strict=True):
        for reader in own:
            reader.replace_source_output(output)


def _infer_shapes(node: ov.Node) -> None:
    for value in node.input_values():
        _infer_shapes(value.get_node())
    node.validate_and_infer_types()


def center_keys(model: ov.Model) -> int:
    """Subtract the effect of biases from the keys of a paged model, in place; the changed layers.

    A constant in all keys of a head adds the same to all scores of a query, and softmax cancels it.
    But if a token's keys range from -300 to 300, as with the biases of Qwen2, u8 has steps of 2 for
    all of its channels.

    The subtracted center is the mean over positions of the keys of a zero product: the bias in
    channels with slow RoPE rotation, and almost 0 in the others. Layers without a bias are
    unchanged, and so are layers with attention sinks, whose softmax has another term.

    SmolLM2-135M as a Qwen2 with biases of up to 300 in its first layer and its last, in bf16: KL
    from f32 by token 0.0157, centered 0.0057, by channel 0.0053.
    """
    clone = model.clone()  # held, since its ports do not hold it
    layers, zeroed = _keys(model), _keys(clone)
    for keys in zeroed:
        behind = list(before(keys.get_source_output().get_node(), ("MatMul", "Cos", "Sin")))
        for product in (node for node in behind if node.get_type_name() == "MatMul"):
            shape = product.get_output_partial_shape(0)
            sizes = [len(AVERAGED) if axis.is_dynamic else axis.get_length() for axis in shape]
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
        node.input(KEY)
        for node in paged_attentions(model)
        if node.get_input_partial_shape(SINKS)[0] == 0
    ]


def _center(keys: ov.Input) -> NDArray[np.float32] | None:
    """The mean of the keys of zero products; None if it is zero or unknown."""
    behind = before(keys.get_source_output().get_node(), ())
    inputs = [node for node in behind if node.get_type_name() == "Parameter"]
    values = {POSITION_IDS: AVERAGED, "input_ids": np.zeros_like(AVERAGED)}
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


def cut_vocabulary(model: ov.Model, kept: Sequence[int]) -> None:
    """Compute only the logits of tokens `kept`, in place; those of others are `OUTSIDE`.

    That is much of a small model's pass. An embedding that shares the weights stays whole. Raises
    `OptionError` for a draft model whose last layer is not a matrix product with readable weights.
    """
    result, product = model.output("logits").get_node(), last_product(model)
    if product is None or result.input_value(0).get_node().get_type_name() == "ScatterUpdate":
        raise _unreadable(kept)
    width = result.get_input_partial_shape(0)[-1].get_length()
    channels = 0 if product.get_attributes()["transpose_b"] else 1
    _cut(product.input(1), channels, width, kept)
    node = result.input_value(0).get_node()
    while node.get_friendly_name() != product.get_friendly_name():
        if len(node.inputs()) > 1 and node.get_input_partial_shape(1)[-1:] == [width]:
            _cut(node.input(1), -1, width, kept)  # a bias
        node = node.input_value(0).get_node()
    model.validate_nodes_and_infer_types()
    scatter_logits(model, kept, width)


def scatter_logits(model: ov.Model, tokens: Sequence[int], width: int) -> None:
    """Put the logits of some tokens in rows of all `width`, in place; others are `OUTSIDE`."""
    result = model.output("logits").get_node()
    logits = result.input_value(0)
    rows = ops.slice(ops.shape_of(logits), *map(ops.constant, ([0], [-1], [1])))
    full = ops.broadcast(ops.constant(OUTSIDE), ops.concat([rows, ops.constant([width])], 0))
    scattered = ops.scatter_update(full, ops.constant(np.array(tokens)), logits, ops.constant(-1))
    result.input(0).replace_source_output(scattered.output(0))
    scattered.output(0).set_names(logits.names)
    logits.set_names(set())
    model.validate_nodes_and_infer_types()


def _cut(port: ov.Input, axis: int, width: int, kept: Sequence[int]) -> None:
    """Give a port a copy of its constants, of which those of `width` keep some along an axis."""
    copy = ov.Model([port.get_source_output()], [], "constants").clone()  # held for its ports
    [end] = copy.get_results()
    for each in constant_ports(end.input(0)):
        constant, shape = each.get_source_output().get_node(), each.get_partial_shape()
        if len(shape) == 0 or shape[axis] != width:
            continue
        is_readable = each.get_element_type().get_type_name() in READABLE
        if not is_readable or constant.get_type_name() != "Constant":
            raise _unreadable(kept)
        each.replace_source_output(ops.constant(np.take(constant.get_data(), kept, axis)).output(0))
    copy.validate_nodes_and_infer_types()
    port.replace_source_output(end.input_value(0))


def _unreadable(kept: Sequence[int]) -> OptionError:
    return OptionError(
        "{draft_vocabulary} needs a draft model of all tokens, whose last layer is a matrix "
        "product in int8, fp16 or fp32: export it so, or leave the option out",
        draft_vocabulary=len(kept),
    )
