"""Windows and chunks of a decoder's attention, and losses of them in export and paging."""

import numpy as np
import openvino as ov

from ov_specdec.errors import ModelError, Option
from ov_specdec.graph.paging import WINDOW, before, paged_attentions

ATTENTION = "ScaledDotProductAttention"
MASK = 3
"""Index of the mask among the inputs of an exported attention."""


def is_local(model: ov.Model, context_length: int) -> bool:
    """Whether a layer of an exported decoder attends only to nearby tokens.

    Masked entries of the KV cache would take up slots in the window, and in a table of masks, whose
    size is the context.
    """
    sizes = windows(model) | chunks(model)
    return any(size < context_length for size in sizes) or any(map(_table, model.get_ops()))


def windows(model: ov.Model) -> set[int]:
    """The windows of an exported decoder, in tokens.

    Its masks have `key > query - window`, or come from a table, as in GPT-Neo.
    """
    return {window for node in model.get_ops() if (window := _window(node))}


def chunks(model: ov.Model) -> set[int]:
    """The chunks of an exported decoder, in tokens: `floor(key / chunk) == floor(query / chunk)`.

    A token attends to those of its own chunk, as in Llama 4.
    """
    found = set[int]()
    for node in model.get_ops():
        if node.get_type_name() == "Equal" and _is_mask(node):
            sides = [value.get_node() for value in node.input_values()]
            floored = [
                n.input_value(0).get_node() if n.get_type_name() == "Floor" else n for n in sides
            ]
            sizes = {_operand(side, "Divide") for side in floored}
            found |= sizes if len(sizes) == 1 else set()
    return found - {0}


def require_whole(model: ov.Model, chunk: int | None, max_length: int) -> None:
    """Raise `ModelError` for a model with chunks that a sequence may cross, before paging.

    OpenVINO's transformation drops chunks. chunk: by the model's configuration.
    """
    found = chunks(model) | ({chunk} if chunk else set())
    if found and min(found) < max_length:
        raise ModelError(
            f"this model attends in chunks of {min(found)} tokens, which a paged KV cache does not "
            "support: use ",
            Option("kv", "stateful"),
            ", or ",
            Option("max_model_len", min(found)),
        )


def count_windowed(model: ov.Model) -> int:
    """Number of attentions of an exported decoder with a window."""
    attentions = [node for node in model.get_ops() if node.get_type_name() == ATTENTION]
    return sum(
        any(_window(node) for node in before(attention.input_value(MASK).get_node()))
        for attention in attentions
        if attention.get_input_size() > MASK
    )


def require_windows(model: ov.Model, num_wanted: int) -> None:
    """Raise `ModelError` for a paged model that lost windows of the exported one."""
    found = [node.input_value(WINDOW).get_node() for node in paged_attentions(model)]
    num_kept = sum(n.get_type_name() != "Constant" or int(n.get_data()) != 0 for n in found)
    if num_kept < num_wanted:
        raise ModelError(
            f"this model cannot take a paged KV cache (of {num_wanted} layers with a window, "
            f"OpenVINO carries over {num_kept}): use ",
            Option("kv", "stateful"),
        )


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
        return max(-_operand(node.input_value(1).get_node(), "Add"), 0)
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


def _operand(node: ov.Node, kind: str) -> int:
    """The number that a node of this kind adds or divides by; 0 for any other node."""
    if node.get_type_name() != kind:
        return 0
    value = node.input_value(1).get_node()
    is_number = value.get_type_name() == "Constant" and value.get_data().size == 1
    return int(value.get_data().item()) if is_number else 0
