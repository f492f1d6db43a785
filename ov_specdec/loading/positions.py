"""The positions of a graph: whether it is given them, and how it counts them by itself."""

import openvino as ov
from openvino import opset13 as ops

POSITION_IDS = "position_ids"

SECTIONS = 3
"""Of Qwen's rotary embedding, for time, height and width; those of a text are all the same."""

INDICES = 1
"""Place of the indices among the inputs of Gather."""

TAKES_POSITIONS = ("Sin", "Cos", "Softmax", "ScaledDotProductAttention")
"""What follows positions that are not embedded: rotations, and scores to which ALiBi is added."""


def takes_positions(model: ov.Model) -> bool:
    """Whether a model computes with the positions that it is given; some have an unused input."""
    return any(
        bool(port.get_target_inputs()) for port in model.inputs if POSITION_IDS in port.names
    )


def reconnect_positions(model: ov.Model) -> bool:
    """Have a model rotate by the positions that it is given, in place; whether it did not before.

    Optimum's export of Qwen3.5 ignores its `position_ids`, and counts from the length of the KV
    cache. OpenVINO's paged attention does not carry that over. What is counted is copied for each
    section of the rotary embedding: there the input takes its place. A graph without such a copy is
    left as it is.
    """
    unused = [
        port for port in model.inputs if POSITION_IDS in port.names and len(port.partial_shape) == 2
    ]
    if not unused or takes_positions(model):
        return False
    copies = [node for node in model.get_ops() if _copies_counts(node)]
    if len(copies) != 1:
        return False
    given = ops.unsqueeze(unused[0], ops.constant(0, ov.Type.i64))
    copies[0].input(0).replace_source_output(given.output(0))
    model.validate_nodes_and_infer_types()
    return True


def count_from_past(model: ov.Model) -> None:
    """Have positions be `Range(past, past + n)` that are `Range(0, n) + past`, in place.

    Transformers 5.4 writes them so, in LFM2; OpenVINO's paged attention carries over the former
    only, of a graph that has no input for positions.
    """
    for node in model.get_ops():
        if node.get_type_name() != "Add" or len(node.get_output_partial_shape(0)) != 1:
            continue
        counts, past = node.input_value(0).get_node(), node.input_value(1)
        if _counts_up(counts) and len(past.get_partial_shape()) == 0 and gives_positions(node):
            end = ops.add(past, counts.input_value(1))
            joined = ops.range(past, end, counts.input_value(2), node.get_output_element_type(0))
            node.output(0).replace(joined.output(0))
    model.validate_nodes_and_infer_types()


def _counts_up(node: ov.Node) -> bool:
    """Whether a node counts 0, 1, 2, ..."""
    if node.get_type_name() != "Range":
        return False
    ends = [node.input_value(place).get_node() for place in (0, 2)]
    return all(
        end.get_type_name() == "Constant" and end.get_data().item() == wanted
        for end, wanted in zip(ends, (0, 1), strict=True)
    )


def _copies_counts(node: ov.Node) -> bool:
    """Whether a node makes [sections, batch, tokens] of numbers that are counted."""
    if node.get_type_name() != "Broadcast":
        return False
    shape, source = node.get_output_partial_shape(0), node.input_value(0).get_node()
    if len(shape) != 3 or shape[0] != SECTIONS or source.get_type_name() != "Reshape":
        return False
    counted: str = source.input_value(0).get_node().get_type_name()
    return counted == "Range"


def gives_positions(count: ov.Node) -> bool:
    """Whether numbers are embedded, rotate something, or come to the scores of an attention.

    Numbers that are only compared with others make a mask, and no positions.
    """
    seen, ahead = set[str](), [count]
    while ahead:
        outputs = ahead.pop().outputs()
        for user in (user for output in outputs for user in output.get_target_inputs()):
            node = user.get_node()
            name, kind = node.get_friendly_name(), node.get_type_name()
            if kind in TAKES_POSITIONS or (kind == "Gather" and user.get_index() == INDICES):
                return True
            if name in seen or kind in ("ShapeOf", "Result"):
                continue
            seen.add(name)
            if node.get_output_element_type(0) != ov.Type.boolean:
                ahead.append(node)
    return False
