"""Adapts the inputs of models with Mamba layers to those of other decoders."""

import openvino as ov
from openvino import opset13 as ops

from ov_specdec.errors import ModelError

CACHE_POSITION = "cache_position"
MASK_NEW_TOKENS = frozenset({"falcon_mamba", "mamba", "zamba2"})
"""Families whose attention mask covers only the tokens of a pass. Their graphs do not show it;
Optimum uses their names too."""


def take_usual_inputs(model: ov.Model, model_type: str) -> None:
    """Adapt a model of these families to the mask of a whole sequence, without `cache_position`.

    It changes the model in place, and leaves other families unchanged.
    """
    if model_type not in MASK_NEW_TOKENS:
        return
    inputs = {name: port for port in model.inputs for name in port.names}
    readers = list(inputs["attention_mask"].get_target_inputs())
    last = ops.constant([1])  # axis, and step
    size = ops.gather(ops.shape_of(inputs["input_ids"]), last, ops.constant(0))
    total = ops.gather(ops.shape_of(inputs["attention_mask"]), last, ops.constant(0))
    past = ops.subtract(total, size)
    mask = ops.slice(inputs["attention_mask"], past, total, last, last)
    for reader in readers:
        reader.replace_source_output(mask.output(0))
    if CACHE_POSITION in inputs:
        _count(model, inputs[CACHE_POSITION], past)
    model.validate_nodes_and_infer_types()


def _count(model: ov.Model, port: ov.Output, past: ov.Node) -> None:
    """Compute `cache_position`: all places of a convolution at first, then the next one."""
    kernel = ops.constant(_kernel(model))
    axis = ops.constant([0])
    is_new = ops.equal(ops.squeeze(past, axis), ops.constant(0))
    first = ops.select(is_new, ops.constant(0), kernel)
    end = ops.add(first, ops.select(is_new, kernel, ops.constant(1)))
    counted = ops.range(first, end, ops.constant(1), ov.Type.i64)
    for reader in port.get_target_inputs():
        reader.replace_source_output(counted.output(0))
    model.remove_parameter(port.get_node())


def _kernel(model: ov.Model) -> int:
    """Kernel size of a convolution: the last axis of its state."""
    for variable in model.get_variables():
        if ".conv." in variable.info.variable_id:
            kernel: int = variable.info.data_shape[-1].get_length()
            return kernel
    raise ModelError("this model has `cache_position`, but no state of a convolution")
