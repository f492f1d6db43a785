"""The int8 scales of a larger model: those of the original, wherever the export found others."""

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from tests.benchmarks.expansion.scales import restore_scales

NAME = "self.model.layers.0.mlp.up_proj.weight"


def model_with(integers, scale, zero_point, name=NAME):
    """A model that dequantizes one matrix, with its parts named as Optimum's export names them."""
    parts = {
        "": np.array(integers, np.uint8),
        "/scale": np.array(scale, np.float16)[:, None],
        "/zero_point": np.array(zero_point, np.uint8)[:, None],
    }
    constants = {part: ov.op.Constant(array) for part, array in parts.items()}
    for part, constant in constants.items():
        constant.set_friendly_name(name + part)
    weights, zero, factor = (
        ops.convert(constants[part], "f32") for part in ("", "/zero_point", "/scale")
    )
    return ov.Model([ops.multiply(ops.subtract(weights, zero), factor)], [])


def floats(model):
    """The weights that the model of `model_with` computes."""
    return ov.compile_model(model, "CPU")({})[0]


ORIGINAL = model_with([[0, 254], [0, 255]], scale=[0.5, 0.25], zero_point=[100, 128])


def test_a_row_of_another_scale_gets_the_originals_and_its_integers():
    wide = model_with(
        [[0, 255, 200, 100], [0, 255, 64, 128], [1, 2, 3, 4]],
        scale=[0.498, 0.25, 2.0],
        zero_point=[100, 128, 7],
    )
    before = floats(wide)
    assert restore_scales(wide, ORIGINAL) == 1
    after = floats(wide)
    np.testing.assert_array_equal(after[:2, :2], floats(ORIGINAL))
    # What was added to that row stays within half a step, and zero stays zero.
    np.testing.assert_allclose(after[0, 2:], before[0, 2:], atol=0.25)
    assert after[0, 3] == before[0, 3] == 0
    np.testing.assert_array_equal(after[1:], before[1:])


def test_a_value_beyond_the_originals_range_takes_its_end():
    wide = model_with([[0, 255, 255], [0, 255, 9]], scale=[1.0, 0.25], zero_point=[100, 128])
    assert restore_scales(wide, ORIGINAL) == 1
    assert floats(wide)[0, 2] == 0.5 * (255 - 100)


def test_what_has_the_originals_scales_or_no_original_stays():
    same = model_with([[0, 254, 9], [0, 255, 9]], scale=[0.5, 0.25], zero_point=[100, 128])
    assert restore_scales(same, ORIGINAL) == 0
    added = model_with([[1, 2, 3]], scale=[3.0], zero_point=[1], name=NAME.replace("0", "1"))
    assert restore_scales(added, ORIGINAL) == 0
