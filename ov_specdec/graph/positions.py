"""Makes positions an input of graphs that count them internally."""

import openvino as ov
from openvino import opset13 as ops

POSITION_IDS = "position_ids"


def takes_positions(model: ov.Model) -> bool:
    """Whether a model uses its input of positions; in some it is unused."""
    return any(
        bool(port.get_target_inputs()) for port in model.inputs if POSITION_IDS in port.names
    )


def reconnect_positions(model: ov.Model) -> bool:
    """Make a model rotate by its input of positions, in place. Returns whether it changed.

    Optimum's export of Qwen3.5 ignores its `position_ids`, and counts from the length of the KV
    cache, which OpenVINO's paged attention does not support. The graph copies its counts for each
    section of the rotary embedding; the input replaces the counts there. A graph without such a
    copy is unchanged.
    """
    unused = [
        port for port in model.inputs if POSITION_IDS in port.names and len(port.partial_shape) == 2
    ]
    copies = [node for node in model.get_ops() if _copies_counts(node)]
    if not unused or takes_positions(model) or len(copies) != 1:
        return False
    given = ops.unsqueeze(unused[0], ops.constant(0, ov.Type.i64))
    copies[0].input(0).replace_source_output(given.output(0))
    model.validate_nodes_and_infer_types()
    return True


def take_positions(model: ov.Model) -> bool:
    """Make a model rotate by a new input of positions, in place. Returns whether it changed.

    Optimum's export of LFM2 with transformers 5.4 has no such input: it adds the cached length to a
    range, which OpenVINO's paged attention does not support. A graph that counts in another way is
    unchanged.
    """
    counts = [node for node in model.get_ops() if _is_rotated_count(node)]
    if any(POSITION_IDS in port.names for port in model.inputs) or len(counts) != 1:
        return False
    given = ops.parameter([-1, -1], ov.Type.i64, name=POSITION_IDS)
    given.output(0).set_names({POSITION_IDS})
    for user in counts[0].output(0).get_target_inputs():
        user.replace_source_output(given.output(0))
    model.add_parameters([given])
    model.validate_nodes_and_infer_types()
    return True


def _is_rotated_count(node: ov.Node) -> bool:
    """Whether a node adds to a range, [batch, tokens], for a rotary embedding."""
    if node.get_type_name() != "Unsqueeze" or len(node.get_output_partial_shape(0)) != 2:
        return False
    added = node.input_value(0).get_node()
    if added.get_type_name() != "Add":
        return False
    counted = [value.get_node().get_type_name() for value in added.input_values()]
    reached = [node] if "Range" in counted else []
    for kind in ("Unsqueeze", "Convert", "MatMul"):
        outputs = [output for each in reached for output in each.outputs()]
        users = [user.get_node() for output in outputs for user in output.get_target_inputs()]
        reached = [user for user in users if user.get_type_name() == kind]
    return bool(reached)


def _copies_counts(node: ov.Node) -> bool:
    if node.get_type_name() != "Broadcast":
        return False
    shape, source = node.get_output_partial_shape(0), node.input_value(0).get_node()
    # Sections of Qwen's rotary embedding: time, height and width, equal for text.
    if len(shape) != 3 or shape[0] != 3 or source.get_type_name() != "Reshape":
        return False
    counted: str = source.input_value(0).get_node().get_type_name()
    return counted == "Range"
