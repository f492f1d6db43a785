"""Inputs of a paged model that select the rows of its attention."""

from collections.abc import Collection, Sequence

import openvino as ov
from openvino import opset13 as ops

from ov_specdec.graph.paging import INDICES, KEY, QUERY, SOURCES, VALUE, paged_attentions
from ov_specdec.runner.base import ATTENTION_INDICES, KEPT_INDICES

POSITIONS = "position_ids"


def repeat_attention_rows(model: ov.Model) -> None:
    """Add inputs to a paged model that select the rows of its attention, in place.

    For a sequence with one token in a pass, another attention kernel runs than for several, which
    sums in a different order. With a repeated row, whose result is dropped, the same kernel runs,
    while matrix products keep one row.
    """
    inputs = {}
    for name in (ATTENTION_INDICES, KEPT_INDICES):
        inputs[name] = ops.parameter([-1], ov.Type.i32, name=name)
        inputs[name].output(0).set_names({name})
    attentions = paged_attentions(model)
    attended = [node.input_value(port) for node in attentions for port in (QUERY, KEY, VALUE)]
    for rows in _fused(attended, attentions) or attended:
        _gather(rows, inputs[ATTENTION_INDICES])
    for attention in attentions:
        _gather(attention.output(0), inputs[KEPT_INDICES])
    model.add_parameters(list(inputs.values()))
    model.validate_nodes_and_infer_types()


def _gather(rows: ov.Output, indices: ov.Node) -> None:
    readers = list(rows.get_target_inputs())
    gathered = ops.gather(rows, indices, ops.constant(0, ov.Type.i32))
    for reader in readers:
        reader.replace_source_output(gathered.output(0))


def _fused(attended: Sequence[ov.Output], attentions: Sequence[ov.Node]) -> list[ov.Output]:
    """Fused products (`fuse_qkv`) and positions of which all that is attended is made, row by row.

    Empty if it is made of anything else, or if anything else is made of these. Selecting rows there
    takes two gathers in each layer instead of four.
    """
    found: dict[str, ov.Output] = {}
    seen, ahead = set[str](), [value.get_node() for value in attended]
    while ahead:
        node = ahead.pop()
        name, kind, values = node.get_friendly_name(), node.get_type_name(), node.input_values()
        if name in seen or kind == "Constant":
            continue
        seen.add(name)
        if kind == "VariadicSplit" and values[0].get_node().get_type_name() == "MatMul":
            found[values[0].get_node().get_friendly_name()] = values[0]
        elif kind == "Parameter" and POSITIONS in node.output(0).get_names():
            found[POSITIONS] = node.output(0)
        elif kind in (*SOURCES, "ShapeOf"):
            return []
        else:
            ahead += [value.get_node() for value in values]
    ends = {attention.get_friendly_name() for attention in attentions}
    is_all = all(_made_of(rows, ends) <= seen for rows in found.values())
    return list(found.values()) if is_all else []


def _made_of(rows: ov.Output, ends: Collection[str]) -> set[str]:
    """The names of the nodes that depend on rows, up to `ends`."""
    names, ahead = set[str](), [rows]
    while ahead:
        for reader in ahead.pop().get_target_inputs():
            node = reader.get_node()
            name = node.get_friendly_name()
            if name not in {*names, *ends} and not _reads_head_size(node):
                names.add(name)
                ahead += node.outputs()
    return names


def _reads_head_size(node: ov.Node) -> bool:
    """Whether a node gives nothing but the last, static size of its input."""
    if node.get_type_name() != "ShapeOf":
        return False
    last = len(node.get_input_partial_shape(0)) - 1
    readers = [reader.get_node() for reader in node.output(0).get_target_inputs()]
    indices = [reader.input_value(INDICES).get_node() for reader in readers]
    return all(
        reader.get_type_name() == "Gather"
        and index.get_type_name() == "Constant"
        and index.get_data().tolist() in (-1, last, [-1], [last])
        for reader, index in zip(readers, indices, strict=True)
    )
