"""The int8 scales of the original, put back where the export of a larger model found others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from tests.benchmarks.expansion.ir_weights import MATRIX, constants_by_name

PARTS = ("", "/scale", "/zero_point")


@dataclass(frozen=True)
class Quantized:
    """An int8 matrix: integers [rows, columns]; scale and zero point, each [rows, 1].

    A weight is the integer less the zero point, times the scale.
    """

    integers: NDArray[np.integer]
    scale: NDArray[np.floating]
    zero_point: NDArray[np.integer]


def restore_scales(made: ov.Model, original: ov.Model) -> int:
    """Give the rows of `original` in `made` their scale and zero point again; returns how many.

    Quantization lays the 256 steps of int8 over the range of a row. Where rounding left the
    original's row only 255 of them, the same floats get a slightly smaller step the next time.
    """
    live, constants = dict(_matrices(constants_by_name(original))), constants_by_name(made)
    restored = 0
    for name, wide in _matrices(constants):
        if name not in live:
            continue
        rows = _differing(live[name], wide)
        restored += len(rows)
        if len(rows):
            better = _with_rows(live[name], wide, rows)
            arrays = (better.integers, better.scale, better.zero_point)
            for part, array in zip(PARTS, arrays, strict=True):
                _replace(constants[name + part], array)
    return restored


def _matrices(constants: Mapping[str, ov.Node]) -> Iterator[tuple[str, Quantized]]:
    for name in constants:
        if MATRIX.fullmatch(name) and all(name + part in constants for part in PARTS):
            yield name, Quantized(*(constants[name + part].data for part in PARTS))


def _differing(live: Quantized, wide: Quantized) -> NDArray[np.intp]:
    """The rows of `live` whose scale or zero point is another in `wide`."""
    rows = len(live.scale)
    same = (live.scale == wide.scale[:rows]) & (live.zero_point == wide.zero_point[:rows])
    return np.flatnonzero(~same)


def _with_rows(live: Quantized, wide: Quantized, rows: NDArray[np.intp]) -> Quantized:
    """`wide` with `rows` in the scale of `live`, and with the integers of `live` in its columns."""
    scale, zero_point = live.scale[rows], live.zero_point[rows]
    added = wide.integers[rows].astype(np.float32) - wide.zero_point[rows]
    steps = np.rint(added * (wide.scale[rows].astype(np.float32) / scale)) + zero_point
    limits = np.iinfo(wide.integers.dtype)
    better = Quantized(wide.integers.copy(), wide.scale.copy(), wide.zero_point.copy())
    better.integers[rows] = steps.clip(limits.min, limits.max)
    better.integers[rows, : live.integers.shape[1]] = live.integers[rows]
    better.scale[rows], better.zero_point[rows] = scale, zero_point
    return better


def _replace(constant: ov.Node, array: NDArray[np.generic]) -> None:
    new = ov.op.Constant(array)
    new.set_friendly_name(constant.get_friendly_name())
    ov.utils.replace_node(constant, new)
