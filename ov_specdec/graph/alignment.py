"""Makes a decoder of an encoder-decoder model give its cross-attention, for times of words."""

from collections.abc import Sequence

import openvino as ov
from openvino import opset13 as ops

from ov_specdec.errors import ModelError
from ov_specdec.graph.attention import ATTENTION
from ov_specdec.graph.paging import before
from ov_specdec.runner.encoder_decoder import ALIGNMENT_WEIGHTS

SCALE = 4
"""Index of the factor of scores among the inputs of an exported attention."""

Heads = Sequence[tuple[int, int]]
"""Attention heads, each as its layer and its index there, from 0."""


def give_weights(model: ov.Model, heads: Heads | None) -> None:
    """Make cross-attention weights of these heads the only output of a decoder, without states.

    Its passes begin with the first token, and `ALIGNMENT_WEIGHTS` is the softmax of the scores.
    Raises `ModelError` for a head that it lacks.
    """
    layers = [node for node in model.get_ordered_ops() if _attends_to_source(node)]
    if not layers:
        raise ModelError(
            "its graph has no readable cross-attention: export it again with ov-specdec export"
        )
    sizes = [node.get_input_partial_shape(0)[1].get_length() for node in layers]
    if heads is None:
        upper = range(len(layers) // 2, len(layers))
        heads = [(layer, head) for layer in upper for head in range(sizes[layer])]
    for layer, head in heads:
        if not (0 <= layer < len(layers) and 0 <= head < sizes[layer]):
            raise ModelError(
                f"generation_config.json names head {head} of layer {layer} among alignment_heads, "
                f"the decoder has {len(layers)} layers of {max(sizes)} heads: correct it there, or "
                "leave alignment_heads out"
            )
    found = [_weights(layers[layer], head) for layer, head in heads]
    output = ops.concat(found, axis=1).output(0)
    output.set_names({ALIGNMENT_WEIGHTS})
    for result in model.get_results():
        model.remove_result(result)
    model.add_outputs([output])
    # As for a pass over all tokens. Unused nodes, such as the last layer's values, go with them:
    # they could not be compiled.
    for node in model.get_ordered_ops():
        if node.get_type_name() == "ReadValue":
            for reader in node.output(0).get_target_inputs():
                reader.replace_source_output(node.input_value(0))
    for sink in model.get_sinks():
        model.remove_sink(sink)
    for variable in model.get_variables():
        model.remove_variable(variable)
    model.validate_nodes_and_infer_types()


def _attends_to_source(node: ov.Node) -> bool:
    if node.get_type_name() != ATTENTION:
        return False
    keys = before(node.input_value(1).get_node())
    return all("input_ids" not in each.output(0).get_names() for each in keys)


def _weights(attention: ov.Node, head: int) -> ov.Node:
    """The weights of one head, [1, 1, tokens, positions]."""
    index, axis = ops.constant([head], ov.Type.i64), ops.constant(1, ov.Type.i64)
    query, key = (ops.gather(attention.input_value(i), index, axis) for i in (0, 1))
    scores = ops.matmul(query, key, transpose_a=False, transpose_b=True)
    if attention.get_input_size() > SCALE:
        scores = ops.multiply(scores, attention.input_value(SCALE))
    else:
        size = attention.get_input_partial_shape(0)[-1].get_length()
        scores = ops.multiply(scores, ops.constant(size**-0.5, ov.Type.f32))
    return ops.softmax(scores, axis=-1)
