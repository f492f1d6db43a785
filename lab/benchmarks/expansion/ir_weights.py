"""The weights of a Llama, read back from the IR that Optimum made of it."""

import re
from collections.abc import Iterator

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from lab.benchmarks.expansion.shape import LlamaShape
from lab.benchmarks.expansion.weights import Array, norm_names, tensor_names
from ov_specdec.errors import ModelError

# Matrices keep their names. A norm's weights are a nameless constant, found by its multiplication.
MATRIX = re.compile(r"self\.(.*\.weight)(?:_compressed)?")
NORM = re.compile(r"__module\.(model\.(?:.*norm))/aten::mul/Multiply_1")
PLAIN = ("f32", "f16", "bf16")


def read_weights(model: ov.Model, shape: LlamaShape) -> dict[str, Array]:
    """The tensors of a Llama in f32, by the names that transformers gives them.

    int8 weights are dequantized. Raises `ModelError` for an IR that is not a Llama of this shape,
    and for weights in another format, such as int4.
    """
    constants = constants_by_name(model)
    # OpenVINO leaves out a multiplication by ones, so a norm without weights has these.
    found = {name: np.ones(shape.hidden, np.float32) for name in norm_names(shape)}
    found.update(_norms(model))
    for name in constants:
        if match := MATRIX.fullmatch(name):
            found[match[1]] = _dequantized(name, constants)
    names = tensor_names(shape)
    if missing := [name for name in names if name not in found]:
        raise ModelError(
            f"the IR holds no {missing[0]}: only a Llama can be expanded, as ov-specdec export "
            "or optimum-cli writes it"
        )
    return {name: found[name] for name in names}


def constants_by_name(model: ov.Model) -> dict[str, ov.Node]:
    """The operations that hold values, by their friendly names."""
    return {op.get_friendly_name(): op for op in model.get_ops() if _is_constant(op)}


def _is_constant(op: ov.Node) -> bool:
    return bool(op.get_type_name() == "Constant")


def _dequantized(name: str, constants: dict[str, ov.Node]) -> Array:
    """A weight matrix; an int8 one has its scale and its zero point beside it, one to a row."""
    constant = constants[name]
    kind = constant.get_element_type().get_type_name()
    if kind in PLAIN:
        return _floats(constant)
    scale, zero_point = (constants.get(f"{name}/{part}") for part in ("scale", "zero_point"))
    if kind not in ("u8", "i8") or scale is None or len(constant.shape) != 2:
        raise ModelError(
            f"{name} is stored as {kind}: export the model as int8 or fp16 to expand it"
        )
    weights = _floats(constant)
    if zero_point is not None:
        weights -= _floats(zero_point)
    weights *= _floats(scale)
    return weights


def _norms(model: ov.Model) -> Iterator[tuple[str, Array]]:
    for op in model.get_ops():
        if match := NORM.fullmatch(op.get_friendly_name()):
            factors = [
                _behind_conversion(port.get_source_output().get_node()) for port in op.inputs()
            ]
            yield from (
                (f"{match[1]}.weight", _floats(x).ravel()) for x in factors if _is_constant(x)
            )


def _behind_conversion(op: ov.Node) -> ov.Node:
    """What a conversion converts, such as weights in f16; any other operation itself."""
    if op.get_type_name() == "Convert":
        return op.input_value(0).get_node()
    return op


def _floats(constant: ov.Node) -> Array:
    """A copy in f32."""
    data: NDArray[np.float32] = np.array(constant.get_data(dtype=np.float32))
    return data
