"""Attention of a decoder: its windows, what export and paging lose of it, and its weights."""

from collections.abc import Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from ov_specdec.errors import ModelError
from ov_specdec.graph.paging import WINDOW, before, not_paged, paged_attentions
from ov_specdec.runner.encoder_decoder import ALIGNMENT_WEIGHTS

ATTENTION = "ScaledDotProductAttention"
MASK, SCALE = 3, 4
"""Indices of the mask and of the factor of scores among the inputs of an exported attention."""

Heads = Sequence[tuple[int, int]]
"""Attention heads, each as its layer and its index there, from 0."""


def windows(model: ov.Model) -> list[int]:
    """The windows of the attentions of an exported decoder that have one, in tokens.

    Their masks have `key > query - window`, or come from a table, as in GPT-Neo.
    """
    attentions = [node for node in model.get_ops() if node.get_type_name() == ATTENTION]
    masks = [node.input_value(MASK) for node in attentions if node.get_input_size() > MASK]
    sizes = (max(map(_window, before(mask.get_node()))) for mask in masks)
    return [size for size in sizes if size]


def has_mask_table(model: ov.Model) -> bool:
    """Whether attention of an exported decoder has a table of masks, whose size is the context."""
    return any(map(_table, model.get_ops()))


def require_windows(model: ov.Model, num_wanted: int) -> None:
    """Raise `ModelError` for a paged model that lost windows of the exported one."""
    found = [node.input_value(WINDOW).get_node() for node in paged_attentions(model)]
    num_kept = sum(n.get_type_name() != "Constant" or int(n.get_data()) != 0 for n in found)
    if num_kept < num_wanted:
        layers = f"of {num_wanted} layers with a window"
        raise not_paged(f"{layers}, OpenVINO carries over {num_kept}")


def lost_cap(model: ov.Model, cap: float | None) -> str:
    """A warning about a cap on attention scores that the export dropped; "" if there is none.

    The operation of transformers' SDPA attention cannot cap scores.
    """
    if cap is None or all(node.get_type_name() != ATTENTION for node in model.get_ops()):
        return ""
    return (
        f"attention scores are not capped at {cap:g} as config.json says, "
        "since the export drops it: texts are those of transformers with "
        'attn_implementation="sdpa", not with "eager"'
    )


def _window(node: ov.Node) -> int:
    """The window of a node of a mask; 0 for any other node."""
    if node.get_type_name() == "Greater" and _is_mask(node):
        return max(-_added(node.input_value(1).get_node()), 0)
    if num_queries := _table(node):
        visible = int(np.count_nonzero(node.get_data()[0, 0, -1]))
        return visible if visible < num_queries else 0
    return 0


def _table(node: ov.Node) -> int:
    """Queries of a constant table of masks [1, 1, queries, keys]; 0 for any other node."""
    types = (ov.Type.boolean, ov.Type.u8, ov.Type.i8)
    if node.get_type_name() != "Constant" or node.get_output_element_type(0) not in types:
        return 0
    shape = list(node.get_output_shape(0))
    return shape[2] if len(shape) == 4 and shape[:2] == [1, 1] and shape[2] == shape[3] > 1 else 0


def _is_mask(node: ov.Node) -> bool:
    """Whether a comparison is between all queries and all keys."""
    shape = node.get_output_partial_shape(0)
    return shape.rank.is_static and len(shape) == 4 and shape[2].is_dynamic and shape[3].is_dynamic


def _added(node: ov.Node) -> int:
    """The number that a node adds; 0 for any other node."""
    if node.get_type_name() != "Add":
        return 0
    value = node.input_value(1).get_node()
    is_number = value.get_type_name() == "Constant" and value.get_data().size == 1
    return int(value.get_data().item()) if is_number else 0


def give_weights(model: ov.Model, heads: Heads | None) -> None:
    """Make cross-attention weights of these heads the only output of a decoder, without states.

    They give the times of words. Its passes begin with the first token, and `ALIGNMENT_WEIGHTS` is
    the softmax of the scores.
    Raises `ModelError` for a head that it lacks.
    """
    layers = [node for node in model.get_ordered_ops() if _attends_to_encoder(node)]
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


def _attends_to_encoder(node: ov.Node) -> bool:
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
