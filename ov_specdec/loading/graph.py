"""What is read off a decoder's graph and changed in it: paging, rows of logits, LongRoPE."""

import math
from collections.abc import Iterator

import openvino as ov
from openvino import opset13 as ops

from ov_specdec.cache.longrope import LONG
from ov_specdec.errors import ModelError, Option, openvino_message
from ov_specdec.loading.positions import takes_positions
from ov_specdec.runner.base import ATTENTION_INDICES, KEPT_INDICES, LOGITS_INDICES

QUERY, KEY, VALUE = 0, 1, 2
"""Places of the rows that OpenVINO's paged attention gets among its inputs."""

ALIBI_SLOPES = 11
"""Place of the slopes among the inputs of OpenVINO's paged attention; empty without ALiBi."""

INDICES = 1
"""Place of the indices among the inputs of Gather."""

TAKES_POSITIONS = ("Sin", "Cos", "Softmax", "ScaledDotProductAttention")
"""What follows positions that are not embedded: rotations, and scores to which ALiBi is added."""

SOURCES = ("Parameter", "ReadValue")
"""Where values come from."""

PASSED = ("Convert", "Add", "Subtract", "Multiply", "Divide", "Tanh")
"""What may stand between the last matrix product and the logits: bias, scaling, capping."""


def to_paged(model: ov.Model) -> None:
    """Turn a stateful IR into a paged one, in place: its KV states become cache inputs.

    Tokens are flattened to one axis, and `past_lens`, `block_indices` and their like say where in
    the caches each sequence lies. Raises `ModelError` if OpenVINO cannot do it, or would lose the
    model's positions on the way.
    """
    counts_by_index = not hides_by_mask(model)
    try:
        # A private name: OpenVINO has no public one for it yet.
        from openvino._offline_transformations import paged_attention_transformation
    except ImportError as error:
        raise ModelError(
            f"OpenVINO {ov.__version__} lacks paged_attention_transformation: use ",
            Option("kv", "stateful"),
            ", or openvino 2026.4",
        ) from error
    try:
        paged_attention_transformation(model)
    except RuntimeError as error:
        raise ModelError(
            f"this model cannot take a paged KV cache ({openvino_message(error)}): use ",
            Option("kv", "stateful"),
        ) from error
    if any(node.get_type_name() == "ReadValue" for node in model.get_ops()):
        raise ModelError(
            "this model cannot take a paged KV cache (OpenVINO leaves some of its states as they "
            "are): use ",
            Option("kv", "stateful"),
        )
    if counts_by_index and not takes_positions(model) and not _has_alibi(model):
        raise ModelError(
            "this model cannot take a paged KV cache (OpenVINO does not carry over how it counts "
            "positions): use ",
            Option("kv", "stateful"),
        )


def sequence_axes(model: ov.Model, prefix: str = "") -> dict[str, int]:
    """The token axis of each KV state of a stateful model, by the name of the state.

    prefix: states whose names begin otherwise are left out.

    Recurrent states, which have no axis of tokens, are left out: see `recurrent_state`. Raises
    `ModelError`, naming the state, for one that has several axes besides the batch axis (0) that
    could be it.
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
    """The name of a state that has no token axis; None where all have one.

    Linear attention and convolutions fold all tokens into a state of fixed size, which cannot be
    trimmed.
    """
    states = [variable.info for variable in model.get_variables()]
    return next((str(s.variable_id) for s in states if not _dynamic_axes(s.data_shape)), None)


def recurrent_bytes(model: ov.Model) -> int:
    """Bytes of the recurrent states of one sequence, in f32."""
    states = [variable.info.data_shape for variable in model.get_variables()]
    fixed = [list(shape)[1:] for shape in states if not _dynamic_axes(shape)]
    sizes: list[int] = [math.prod(axis.get_length() for axis in shape) for shape in fixed]
    return 4 * sum(sizes)


def _dynamic_axes(shape: ov.PartialShape) -> list[int]:
    """The dynamic axes of a state beside that of the batch."""
    return [axis for axis in range(1, len(shape)) if shape[axis].is_dynamic]


def hides_by_mask(model: ov.Model) -> bool:
    """Whether an entry of the KV cache that the attention mask hides leaves no trace.

    It does where positions are an input, and where they are counted from the mask by a cumulative
    sum (OPT, BLOOM). Where they are counted otherwise, as ALiBi by index in MPT, a hidden entry
    still shifts those after it.
    """
    if takes_positions(model):
        return True
    counts = [node for node in model.get_ops() if node.get_type_name() == "CumSum"]
    return any(_sources(node) == {"attention_mask"} and _gives_positions(node) for node in counts)


def before(node: ov.Node) -> Iterator[ov.Node]:
    """A node, and those that its values are computed from, up to inputs and states.

    Shapes do not count: what they are computed from is left out.
    """
    seen, ahead = set[str](), [node]
    while ahead:
        node = ahead.pop()
        if (name := node.get_friendly_name()) not in seen:
            seen.add(name)
            yield node
            if node.get_type_name() not in (*SOURCES, "ShapeOf"):
                ahead += [value.get_node() for value in node.input_values()]


def _sources(node: ov.Node) -> set[str]:
    """The inputs and states that a node's values are computed from; their shapes do not count."""
    return {
        next(iter(each.output(0).get_names()), each.get_friendly_name())
        for each in before(node)
        if each.get_type_name() in SOURCES
    }


def _gives_positions(count: ov.Node) -> bool:
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


def _has_alibi(model: ov.Model) -> bool:
    """Whether the attention of a paged model has slopes for ALiBi."""
    attentions = paged_attentions(model)
    return any(node.get_input_partial_shape(ALIBI_SLOPES)[0] != 0 for node in attentions)


def paged_attentions(model: ov.Model) -> list[ov.Node]:
    """The attentions of a paged model."""
    return [node for node in model.get_ops() if "PagedAttention" in node.get_type_name()]


def repeat_attention_rows(model: ov.Model) -> None:
    """Have a paged model choose, by new inputs, which rows its attention gets and gives.

    A sequence with one token in a pass takes another attention kernel than one with several, which
    sums in another order. With its row given twice, and the spare result dropped, it takes the same
    one, while matrix products keep one row. The model is changed in place.
    """
    inputs = {}
    for name in (ATTENTION_INDICES, KEPT_INDICES):
        inputs[name] = ops.parameter([-1], ov.Type.i32, name=name)
        inputs[name].output(0).set_names({name})
    axis = ops.constant(0, ov.Type.i32)
    for attention in paged_attentions(model):
        for place in (QUERY, KEY, VALUE):
            rows = ops.gather(attention.input_value(place), inputs[ATTENTION_INDICES], axis)
            attention.input(place).replace_source_output(rows.output(0))
        readers = list(attention.output(0).get_target_inputs())
        kept = ops.gather(attention.output(0), inputs[KEPT_INDICES], axis)
        for reader in readers:
            reader.replace_source_output(kept.output(0))
    model.add_parameters(list(inputs.values()))
    model.validate_nodes_and_infer_types()


def select_rows(model: ov.Model, axis: int) -> bool:
    """Have a decoder compute logits only for the rows that its new input `LOGITS_INDICES` names.

    The last layer is expensive, and most rows of a prompt are not needed.

    axis: of the tokens in the last hidden state: 1 in an exported IR, 0 in a paged one. The model
    is changed in place. Returns False, and leaves it as it is, where its last layer is not a matrix
    product of the hidden state, so that all rows have to be computed.
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


def choose_factors(model: ov.Model, border: int) -> bool:
    """Have a decoder take its long factors where its new input `LONG` says so, for a whole pass.

    As exported it takes them where any token of the pass lies beyond the border, which is decided
    once for all rows: `max(position_ids) + 1 > border`. The model, exported or paged, is changed in
    place. Returns False, and leaves it as it is, where nothing is chosen by the border.
    """
    choices = [node for node in model.get_ops() if _chooses_by(node, border)]
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


def _chooses_by(node: ov.Node, border: int) -> bool:
    """Whether a node says if one number is above the border, and that selects one of two values."""
    if node.get_type_name() != "Greater" or node.get_output_partial_shape(0) != ov.PartialShape([]):
        return False
    other = node.input_value(1).get_node()
    users = {user.get_node().get_type_name() for user in node.output(0).get_target_inputs()}
    is_border = other.get_type_name() == "Constant" and int(other.get_data()) == border
    return is_border and users == {"Select"}


def has_delta_rule(model: ov.Model) -> bool:
    """Whether a paged model has layers with a gated delta rule."""
    return any(node.get_type_name() == "PagedGatedDeltaNet" for node in model.get_ops())


def static_shape(model: ov.Model, num_tokens: int) -> ov.Model:
    """A paged model once more, for passes over exactly so many tokens of any number of sequences.

    It computes the logits of all of them. Raises `ModelError` where OpenVINO cannot do it.
    """
    static = model.clone()
    per_token = {"input_ids", "position_ids", LOGITS_INDICES, KEPT_INDICES}
    try:
        static.reshape({p: [num_tokens] for p in static.inputs if p.names & per_token})
    except RuntimeError as error:
        raise ModelError(
            f"this model has no form for passes over {num_tokens} tokens "
            f"({openvino_message(error)}): use ",
            Option("static_shapes", "none"),
        ) from error
    return static


def last_product(model: ov.Model) -> ov.Node | None:
    """The matrix product that the logits come from."""
    node = model.output("logits").get_node().input_value(0).get_node()
    while node.get_type_name() in PASSED:
        node = node.input_value(0).get_node()
    return node if node.get_type_name() == "MatMul" else None
