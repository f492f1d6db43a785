"""Analyses and changes a decoder's graph: paging, positions, rows of logits, LongRoPE."""

from collections.abc import Collection, Iterator

import openvino as ov
from openvino import opset13 as ops

from ov_specdec.errors import ModelError, openvino_message
from ov_specdec.runner.base import FEATURES, LOGITS_INDICES, LONG

KEY, WINDOW, ALIBI_SLOPES, SINKS = 1, 10, 11, 20
"""Indices among the inputs of OpenVINO's paged attention: a window of 0 is none, and without ALiBi
and sinks theirs are empty."""

POSITION_IDS = "position_ids"

INPUTS = ("Parameter", "ReadValue")
"""Types of nodes that no others precede: inputs and states."""


def to_paged(model: ov.Model) -> None:
    """Turn a stateful IR into a paged one, in place: its KV states become cache inputs.

    Tokens are flattened to one axis, and `past_lens`, `block_indices` and others locate each
    sequence in the caches. Raises `ModelError` if OpenVINO cannot do it, or would lose the model's
    positions.
    """
    # A private name: OpenVINO has no public one for it yet.
    from openvino._offline_transformations import paged_attention_transformation

    try:
        paged_attention_transformation(model)
    except RuntimeError as error:
        raise not_paged(openvino_message(error)) from error
    if any(node.get_type_name() == "ReadValue" for node in model.get_ops()):
        raise not_paged("OpenVINO leaves some of its states as they are")
    attentions = paged_attentions(model)
    has_alibi = any(node.get_input_partial_shape(ALIBI_SLOPES)[0] != 0 for node in attentions)
    if not uses_positions(model) and not has_alibi:
        raise not_paged("OpenVINO does not carry over how it counts positions")


def not_paged(reason: str) -> ModelError:
    """The error for a model that has to keep its states."""
    return ModelError(
        f"this model cannot take a paged KV cache ({reason}): use {{kv}}", kv="stateful"
    )


def sequence_axes(model: ov.Model, prefix: str = "") -> dict[str, int]:
    """The token axis of each KV state of a stateful model, by the name of the state.

    prefix: of the names of the states to include.

    Excludes recurrent states, which have no token axis: see `recurrent_state`. Raises `ModelError`
    for a state with several candidates besides the batch axis (0).
    """
    axes = {}
    for variable in model.get_variables():
        name, shape = variable.info.variable_id, variable.info.data_shape
        if not name.startswith(prefix):
            continue
        dynamic = _dynamic_axes(shape)
        if len(dynamic) > 1:
            raise ModelError(
                f"state '{name}' of shape {shape} has no single token axis, so it cannot be "
                "trimmed: export the model again with ov-specdec export"
            )
        if dynamic:
            axes[name] = dynamic[0]
    return axes


def recurrent_state(model: ov.Model) -> str | None:
    """The name of a state without a token axis; None if all have one.

    Linear attention and convolutions fold all tokens into a state of fixed size, which cannot be
    trimmed.
    """
    states = [variable.info for variable in model.get_variables()]
    return next((str(s.variable_id) for s in states if not _dynamic_axes(s.data_shape)), None)


def _dynamic_axes(shape: ov.PartialShape) -> list[int]:
    return [axis for axis in range(1, len(shape)) if shape[axis].is_dynamic]


def before(node: ov.Node, ends: Collection[str] = (*INPUTS, "ShapeOf")) -> Iterator[ov.Node]:
    """A node and its predecessors, up to these types: inputs, states, what affects only shapes."""
    seen, ahead = set[str](), [node]
    while ahead:
        node = ahead.pop()
        if (name := node.get_name()) not in seen:
            seen.add(name)
            yield node
            if node.get_type_name() not in ends:
                ahead += [value.get_node() for value in node.input_values()]


def paged_attentions(model: ov.Model) -> list[ov.Node]:
    """The attentions of a paged model, in order."""
    return [node for node in model.get_ordered_ops() if "PagedAttention" in node.get_type_name()]


def select_rows(model: ov.Model, axis: int) -> bool:
    """Add an input `LOGITS_INDICES` to a decoder that selects the rows of logits, in place.

    The last layer is expensive, and most rows of a prompt are not needed.

    axis: of the tokens in the last hidden state: 1 in an exported IR, 0 in a paged one. Returns
    False, and changes nothing, if the last layer is not a matrix product of the hidden state, so
    that it has to compute all rows.
    """
    product = last_product(model)
    if product is None:
        return False
    rows = ops.parameter([-1], ov.Type.i64, name=LOGITS_INDICES)
    rows.output(0).set_names({LOGITS_INDICES})
    gathered = ops.gather(product.input_value(0), rows, ops.constant(axis, ov.Type.i64))
    product.input(0).replace_source_output(gathered.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()
    return True


def choose_factors(model: ov.Model, original_length: int) -> bool:
    """Add an input `LONG` to a decoder, exported or paged, that selects long factors, in place.

    As exported, a pass uses them if any of its tokens is beyond it: `max(position_ids) + 1
    > original_length`. Returns False, and changes nothing, if the graph has no such choice.
    """
    choices = [node for node in model.get_ops() if _chooses_by(node, original_length)]
    if not choices:
        return False
    is_long = ops.parameter([], ov.Type.boolean, name=LONG)
    is_long.output(0).set_names({LONG})
    for choice in choices:
        for user in choice.output(0).get_target_inputs():
            user.replace_source_output(is_long.output(0))
    model.add_parameters([is_long])
    model.validate_nodes_and_infer_types()
    return True


def _chooses_by(node: ov.Node, original_length: int) -> bool:
    if node.get_type_name() != "Greater" or node.get_output_partial_shape(0) != ov.PartialShape([]):
        return False
    other = node.input_value(1).get_node()
    users = {user.get_node().get_type_name() for user in node.output(0).get_target_inputs()}
    is_original = other.get_type_name() == "Constant" and int(other.get_data()) == original_length
    return is_original and users == {"Select"}


def has_delta_rule(model: ov.Model) -> bool:
    """Whether a paged model has layers with a gated delta rule."""
    return any(node.get_type_name() == "PagedGatedDeltaNet" for node in model.get_ops())


def static_shape(model: ov.Model, num_tokens: int) -> ov.Model:
    """A copy of a paged model for passes over exactly `num_tokens` tokens of any sequences.

    It computes the logits of all tokens. Raises `ModelError` if OpenVINO cannot do it.
    """
    static = model.clone()
    shapes = {}
    for port in static.inputs:
        if port.names & {"input_ids", "position_ids", LOGITS_INDICES}:
            shapes[port] = ov.PartialShape([num_tokens])
        elif FEATURES in port.names:
            shapes[port] = ov.PartialShape([num_tokens, 1, port.partial_shape[2]])
    try:
        static.reshape(shapes)
    except RuntimeError as error:
        raise ModelError(
            f"this model has no static shape for passes over {num_tokens} tokens "
            f"({openvino_message(error)}): use {{static_shapes}}",
            static_shapes="none",
        ) from error
    return static


def last_product(model: ov.Model) -> ov.Node | None:
    """The matrix product of the logits."""
    node = model.output("logits").get_node().input_value(0).get_node()
    if node.get_type_name() == "ScatterUpdate":  # of a draft that has some of the tokens
        node = node.input_value(2).get_node()
    # A bias, scaling, capping.
    while node.get_type_name() in ("Convert", "Add", "Subtract", "Multiply", "Divide", "Tanh"):
        node = node.input_value(0).get_node()
    return node if node.get_type_name() == "MatMul" else None


def uses_positions(model: ov.Model) -> bool:
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
    if uses_positions(model) or len(counts) != 1 or not is_flat:
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
