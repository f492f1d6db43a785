"""Hidden states that a main model also gives, for a draft model that reads them."""

from collections.abc import Sequence

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from ov_specdec.errors import ModelError
from ov_specdec.graph.attention import ATTENTION
from ov_specdec.graph.paging import before, last_product
from ov_specdec.runner.base import FEATURES, STATES


def add_hidden_states(model: ov.Model, projection: ov.Model) -> None:
    """Add an output `STATES` to an exported decoder, in place: a projection of hidden states.

    A result on the hidden states themselves would change the logits in bf16, since OpenVINO keeps
    them in f32 for it; a matrix product of them does not, and fewer values are copied.

    projection: its inputs are named "hidden_states.N" by `transformers`' index, where 0 is the
    embedding and the last one is after the final norm. Raises `ModelError` if they do not fit.
    """
    states = hidden_states(model)
    for parameter in projection.get_parameters():
        name, shape = parameter.output(0).any_name, parameter.get_partial_shape()
        layer = int(name.rpartition(".")[2])
        if not -len(states) <= layer < len(states):
            raise ModelError(
                f"the draft model reads hidden state {layer} of the main model, whose graph has "
                f"{len(states)}: use a draft that was made for it"
            )
        width, own = shape[-1].get_length(), states[layer].partial_shape[-1].get_length()
        if width != own:
            raise ModelError(
                f"the draft model reads hidden states of {width} values, those of the main model "
                f"have {own}: use a draft that was made for it"
            )
        for reader in parameter.output(0).get_target_inputs():
            reader.replace_source_output(states[layer])
    projection.output(0).set_names({STATES})
    model.add_results(projection.get_results())
    model.validate_nodes_and_infer_types()


def make_projection(
    layers: Sequence[int],
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None = None,
    norms: Sequence[NDArray[np.float32]] = (),
    epsilon: float = 0.0,
) -> ov.Model:
    """The projection of hidden states with these indices by weight [width, sum of their widths].

    norms: weights of RMS norms before it, one for each hidden state, or one for all together.
    """
    width = weight.shape[1] // len(layers)
    inputs = {
        layer: ops.parameter([-1, -1, width], ov.Type.f32, name=f"hidden_states.{layer}")
        for layer in layers
    }
    for each in inputs.values():
        each.output(0).set_names({each.get_friendly_name()})
    parts: list[ov.Node] = [inputs[layer] for layer in layers]
    if len(norms) > 1:
        parts = [_rms_norm(part, own, epsilon) for part, own in zip(parts, norms, strict=True)]
    joined = ops.concat(parts, -1)
    if len(norms) == 1:
        joined = _rms_norm(joined, norms[0], epsilon)
    states = ops.matmul(joined, ops.constant(weight), transpose_a=False, transpose_b=True)
    if bias is not None:
        states = ops.add(states, ops.constant(bias))
    return ov.Model([ops.result(states)], [*inputs.values()], "projection of hidden states")


def _rms_norm(value: ov.Node, weight: NDArray[np.float32], epsilon: float) -> ov.Node:
    squares = ops.reduce_mean(ops.power(value, np.float32(2.0)), np.array([-1]), keep_dims=True)
    root = ops.sqrt(ops.add(squares, np.float32(epsilon)))
    return ops.multiply(ops.divide(value, root), ops.constant(weight))


def read_features(model: ov.Model) -> None:
    """Add an input `FEATURES` to an exported decoder, in place, which is added to embeddings."""
    embedding = hidden_states(model)[0]
    readers = embedding.get_target_inputs()
    width = embedding.partial_shape[-1].get_length()
    features = ops.parameter([-1, -1, width], ov.Type.f32, name=FEATURES)
    features.output(0).set_names({FEATURES})
    for reader in readers:
        reader.replace_source_output(ops.add(embedding, features).output(0))
    model.add_parameters([features])
    model.validate_nodes_and_infer_types()


def embedding_part(model: ov.Model) -> ov.Model:
    """What computes the embedding of an exported decoder from its ids."""
    [ids] = [node for node in model.get_parameters() if "input_ids" in node.output(0).names]
    return ov.Model([hidden_states(model)[0]], [ids], "embedding")


def hidden_states(model: ov.Model) -> list[ov.Output]:
    """The embedding, the residual after each layer but the last, and what the logits come from.

    [batch, tokens, width] each. Found by structure: layers add to a residual, and each has an
    attention. Raises `ModelError` for a graph without such a residual.
    """
    product = last_product(model)
    order = {node.get_name(): index for index, node in enumerate(model.get_ordered_ops())}

    def place(value: ov.Output) -> int:
        return order[value.get_node().get_name()]

    residuals = list[ov.Output]()
    if product is not None:
        sums = [node.output(0) for node in before(product) if _adds_states(node)]
        residuals = [max(sums, key=place)] if sums else []
    while residuals and _adds_states(residuals[-1].get_node()):
        # What is added depends on the residual, and so comes later.
        residuals.append(min(residuals[-1].get_node().input_values(), key=place))
    found = []
    for node in model.get_ordered_ops():
        if node.get_type_name() == ATTENTION:
            behind = {each.get_name() for each in before(node)}
            own = (value for value in residuals if value.get_node().get_name() in behind)
            found.append(next(own, None))
    states = [value for value in found if value is not None]
    if product is None or not states or len(states) < len(found) or len({*states}) < len(states):
        raise ModelError(
            "the main model's graph does not show its hidden states, which this draft model reads: "
            "use another draft, or another drafter"
        )
    return [*states, product.input_value(0)]


def _adds_states(node: ov.Node) -> bool:
    """Whether a node adds two hidden states [batch, tokens, width]: not a bias, nor a constant."""
    if node.get_type_name() != "Add":
        return False
    shapes = [value.partial_shape for value in node.input_values()]
    return all(len(shape) == 3 and shape[1].is_dynamic for shape in shapes)
