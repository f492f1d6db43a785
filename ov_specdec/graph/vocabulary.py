"""Computes the logits of some tokens only: the last product is much of a small model's pass."""

from collections.abc import Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from ov_specdec.errors import Option, OptionError
from ov_specdec.graph.paging import last_product
from ov_specdec.graph.products import READABLE, constant_ports

OUTSIDE = np.float32(-60_000)
"""The logit of tokens that are not kept: probability 0, and within the range of f16."""


def cut_vocabulary(model: ov.Model, kept: Sequence[int]) -> None:
    """Compute only the logits of tokens `kept`, in place; those of others are `OUTSIDE`.

    An embedding that shares the weights stays whole. Raises `OptionError` for a draft model whose
    last layer is not a matrix product with readable weights.
    """
    result, product = model.output("logits").get_node(), last_product(model)
    if product is None:
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
    logits = result.input_value(0)
    rows = ops.slice(ops.shape_of(logits), *map(ops.constant, ([0], [-1], [1])))
    full = ops.broadcast(ops.constant(OUTSIDE), ops.concat([rows, ops.constant([width])], 0))
    scattered = ops.scatter_update(full, ops.constant(np.array(kept)), logits, ops.constant(-1))
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
        Option("draft_vocabulary", len(kept)),
        " needs a draft model whose last layer is a matrix product in int8, fp16 or fp32: export "
        "it so, or leave the option out",
    )
