"""What is read off a decoder's graph, and changed in it."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from ov_specdec.graph.paging import LOGITS_INDICES, choose_factors, select_rows
from ov_specdec.models.exported import open_exported
from ov_specdec.runner.base import LONG
from tests.support.passes import end_with


@pytest.fixture
def model(tiny_pair):
    return open_exported(tiny_pair[0]).model


@pytest.mark.parametrize(
    ("last_layer", "is_found"),
    [
        # Scaled and capped.
        (lambda row: ops.tanh(ops.multiply(row, ops.constant(np.float32(0.5)))), True),
        (lambda row: ops.softmax(row, -1), False),
    ],
)
def test_rows_are_selected_before_what_treats_each_logit_by_itself(model, last_layer, is_found):
    end_with(model, last_layer)
    assert select_rows(model, axis=1) is is_found
    assert (LOGITS_INDICES in {port.any_name for port in model.inputs}) is is_found


def choosing(*, border=64, compare=ops.greater, choose=ops.select):
    """A model whose output is 2 where a position lies beyond the border, else 1."""
    positions = ops.parameter([-1, -1], np.int64, name="position_ids")
    last = ops.reduce_max(positions, np.array([0, 1]), False)
    is_long = compare(ops.add(last, np.int64(1)), ops.constant(np.int64(border)))
    chosen = choose(is_long, ops.constant(np.float32(2)), ops.constant(np.float32(1)))
    return ov.Model([ops.result(chosen)], [positions], "made by hand")


@pytest.mark.parametrize(
    "settings",
    [
        {"compare": ops.greater_equal},
        {"choose": lambda is_long, *_: ops.convert(is_long, "f32")},
        {"border": [64]},
    ],
)
def test_a_graph_that_chooses_nothing_by_that_border_is_left_alone(settings):
    model = choosing(**settings)
    assert not choose_factors(model, 64)
    assert LONG not in {name for port in model.inputs for name in port.names}
