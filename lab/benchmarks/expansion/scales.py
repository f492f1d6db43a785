"""The int8 scales of the original, put back where the export of a larger model found others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from lab.benchmarks.expansion.ir_weights import MATRIX, constants_by_name

PARTS = ("", "/scale", "/zero_point")
"""Of an int8 matrix, by what follows its name: integers [rows, columns], the others [rows, 1].

A weight is the integer less the zero point, times the scale.
"""


def restore_scales(made: ov.Model, original: ov.Model) -> None:
    """Give the rows of `original` in `made` their integers, scales and zero points again.

    Quantization lays the 256 steps of int8 over the range of a row. Where rounding left the
    original's row only 255 of them, the same floats get a slightly smaller step the next time.
    """
    live, constants = constants_by_name(original), constants_by_name(made)
    for name in filter(MATRIX.fullmatch, live):
        parts = [name + part for part in PARTS]
        if all(part in live and part in constants for part in parts):
            own = [live[part].data for part in parts]
            wide = [constants[part].data.copy() for part in parts]
            _put_into(own, wide)
            for part, array in zip(parts, wide, strict=True):
                new = ov.op.Constant(array)
                new.set_friendly_name(part)
                ov.utils.replace_node(constants[part], new)


def _put_into(own: Sequence[NDArray[Any]], wide: Sequence[NDArray[Any]]) -> None:
    """Put a matrix into the upper left corner of a wider one, whose other columns keep a value."""
    (own_integers, *scaled), (integers, scale, zero_point) = own, wide
    rows, columns = own_integers.shape
    values = (integers[:rows].astype(np.float32) - zero_point[:rows]) * scale[:rows]
    scale[:rows], zero_point[:rows] = scaled
    limits = np.iinfo(integers.dtype)
    steps = np.rint(values / scale[:rows].astype(np.float32)) + zero_point[:rows]
    integers[:rows] = steps.clip(limits.min, limits.max)
    integers[:rows, :columns] = own_integers
