"""Computes the logits of some tokens only, which makes passes of small models shorter."""

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from ov_specdec.errors import ModelError
from ov_specdec.graph.paging import last_product
from ov_specdec.graph.products import constant_ports

OUTSIDE = np.float32(-60_000)
"""The logit of other tokens: probability 0, and in the range of f16."""

TYPES = ("u8", "i8", "f16", "f32")
"""Of weights, those that numpy has."""


def cut_vocabulary(model: ov.Model, kept: NDArray[np.int64]) -> None:
    """Compute only the logits of tokens `kept` [n], in place; those of others are `OUTSIDE`.

    Weights that the embedding shares stay whole there. Raises `ModelError` if the last layer is no
    matrix product with readable weights.
    """
    result = model.output("logits").get_node()
    product, width = last_product(model), result.get_input_partial_shape(0)[-1].get_length()
    if product is None:
        raise ModelError("its last layer is no matrix product")
    rows = 0 if product.get_attributes()["transpose_b"] else 1
    _cut(product.input(1), rows, width, kept)
    node = result.input_value(0).get_node()
    while node.get_friendly_name() != product.get_friendly_name():  # a bias, among others
        for port in node.inputs()[1:]:
            _cut(port, -1, width, kept)
        node = node.input_value(0).get_node()
    model.validate_nodes_and_infer_types()
    logits = result.input_value(0)
    sizes = ops.shape_of(logits)
    leading = ops.slice(sizes, *(ops.constant([n]) for n in (0, -1, 1)))
    shape = ops.concat([leading, ops.constant([width])], 0)
    full = ops.broadcast(ops.constant(OUTSIDE), shape)
    scattered = ops.scatter_update(full, ops.constant(kept), logits, ops.constant(-1))
    result.input(0).replace_source_output(scattered.output(0))
    model.validate_nodes_and_infer_types()


def _cut(port: ov.Input, axis: int, size: int, kept: NDArray[np.int64]) -> None:
    """Give a port its own copy of constants, of which it keeps some of `size` along an axis."""
    branch = ov.Model([port.get_source_output()], [], "weights").clone()
    [end] = branch.get_results()
    for each in constant_ports(end.input(0)):
        source = each.get_source_output()
        if source.get_partial_shape().rank.get_length() and source.get_shape()[axis] == size:
            if source.get_element_type().get_type_name() not in TYPES:
                raise ModelError(
                    f"its last weights are of type {source.get_element_type().get_type_name()}"
                )
            rows = np.take(source.get_node().get_data(), kept, axis)
            each.replace_source_output(ops.constant(rows).output(0))
    branch.validate_nodes_and_infer_types()
    port.replace_source_output(end.input_value(0))
