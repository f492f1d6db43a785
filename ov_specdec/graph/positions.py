"""Makes positions an input of graphs that count them internally."""

import openvino as ov
from openvino import opset13 as ops

POSITION_IDS = "position_ids"


def takes_positions(model: ov.Model) -> bool:
    """Whether a model uses its input of positions; in some it is unused."""
    return any(
        bool(port.get_target_inputs()) for port in model.inputs if POSITION_IDS in port.names
    )


def connect_positions(model: ov.Model) -> bool:
    """Make a model that counts positions rotate by an input of them, in place; whether it changed.

    OpenVINO's paged attention does not support counts from the length of the KV cache. Optimum's
    export of LFM2 with transformers 5.4 adds that length to a range, and has no input of positions.
    That of Qwen3.5 has one that it ignores, and copies its counts for each section of the rotary
    embedding. A graph that counts in another way is unchanged.
    """
    ignored = [port for port in model.inputs if POSITION_IDS in port.names]
    is_count = _copies_counts if ignored else _is_rotated_count
    counts = [node for node in model.get_ops() if is_count(node)]
    is_flat = all(len(port.partial_shape) == 2 for port in ignored)
    if takes_positions(model) or len(counts) != 1 or not is_flat:
        return False
    if ignored:
        given = ops.unsqueeze(ignored[0], ops.constant(0, ov.Type.i64))
        counts[0].input(0).replace_source_output(given.output(0))
    else:
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
    counted = [value.get_node().get_type_name() for value in added.input_values()]
    reached = [node] if added.get_type_name() == "Add" and "Range" in counted else []
    for kind in ("Unsqueeze", "Convert", "MatMul"):
        outputs = [output for each in reached for output in each.outputs()]
        users = [user.get_node() for output in outputs for user in output.get_target_inputs()]
        reached = [user for user in users if user.get_type_name() == kind]
    return bool(reached)


def _copies_counts(node: ov.Node) -> bool:
    """Whether a node copies a range for time, height and width, which are equal for text."""
    if node.get_type_name() != "Broadcast":
        return False
    shape, copied = node.get_output_partial_shape(0), node.input_value(0).get_node()
    if len(shape) != 3 or shape[0] != 3 or copied.get_type_name() != "Reshape":
        return False
    return bool(copied.input_value(0).get_node().get_type_name() == "Range")
