"""Positions that an exported graph counts by itself."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from ov_specdec.graph.positions import connect_positions


def counting(last="MatMul", has_input=False):
    """A graph that rotates by a range from the number of cached tokens on, as LFM2's does."""
    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    cached = ops.parameter([], np.int64, name="cached")
    for given in (ids, cached):
        given.output(0).set_names({given.get_friendly_name()})
    length = ops.gather(ops.shape_of(ids), ops.constant(1), ops.constant(0))
    zero, one = (ops.constant(number, ov.Type.i64) for number in (0, 1))
    count = ops.add(ops.range(zero, length, one, output_type="i64"), cached)
    positions = ops.unsqueeze(ops.unsqueeze(count, zero), one)
    factors = ops.constant(np.full((1, 2, 1), 0.5, np.float32))
    angles = ops.convert(positions, "f32")
    rotated = ops.matmul(factors, angles, False, False) if last == "MatMul" else ops.sin(angles)
    rotated.output(0).set_names({"angles"})
    inputs = [ids, cached]
    if has_input:
        given = ops.parameter([-1, -1], np.int64, name="position_ids")
        given.output(0).set_names({"position_ids"})
        inputs.append(given)
    return ov.Model([ops.result(rotated)], inputs, "made by hand")


def test_a_model_that_counts_takes_positions_in_place_of_that():
    model = counting()
    assert connect_positions(model)
    assert not connect_positions(model)  # once
    compiled = ov.Core().compile_model(model, "CPU")
    given = {"input_ids": [[5, 6, 7]], "cached": 9, "position_ids": [[4, 2, 8]]}
    angles = compiled({name: np.array(value, np.int64) for name, value in given.items()})[0]
    np.testing.assert_array_equal(angles, [[[2.0, 1.0, 4.0]] * 2])


@pytest.mark.parametrize("model", [counting(last="Sin"), counting(has_input=True)])
def test_other_graphs_are_left_as_they_are(model):
    inputs = [port.any_name for port in model.inputs]
    assert not connect_positions(model)
    assert [port.any_name for port in model.inputs] == inputs
