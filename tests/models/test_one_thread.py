"""Models on one CPU thread: a pass that fails says so, and harms no later model."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from ov_specdec import SpeculativePipeline
from ov_specdec.models.devices import OneThreadModel


def compiled():
    """A model that adds 1 to three values, or to one: passes over others fail."""
    values = ops.parameter([-1], ov.Type.f32)
    values.output(0).set_names({"values"})
    three = ops.broadcast(values, ops.constant(np.array([3])))
    model = ov.Model([ops.add(ops.relu(three), ops.constant(np.float32(1)))], [values], "add")
    return OneThreadModel(ov.Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1}))


def run(request, *values, **sharing):
    (output,) = request.infer({"values": np.array(values, np.float32)}, **sharing).values()
    return output.tolist()


def test_a_pass_that_fails_raises_its_error_and_harms_no_later_model():
    for _ in range(3):
        request = compiled().create_infer_request()
        for sharing in ({}, {"share_inputs": True, "share_outputs": True}):
            assert run(request, 1, 2, 3, **sharing) == [2, 3, 4]
            assert run(request, 4, 5, 6, **sharing) == [5, 6, 7]
        with pytest.raises(RuntimeError, match="cannot be broadcasted"):
            run(request, 1, 2)
        del request


@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_on_one_thread_texts_are_the_same(tiny_pair, kv):
    options = {"max_new_tokens": 20, "ignore_eos": True}
    settings = {"kv": kv, "precision": "exact", "num_threads": 1}
    with SpeculativePipeline(*tiny_pair, **settings) as pipeline:
        runner = pipeline.main.runner
        model = runner._model._compiled if kv == "paged" else runner._compiled
        assert isinstance(model, OneThreadModel)
        texts = [
            pipeline.generate("def", num_assistant_tokens=n, **options).token_ids for n in (0, 3)
        ]
    with SpeculativePipeline(*tiny_pair, kv=kv, precision="exact") as pipeline:
        expected = pipeline.generate("def", num_assistant_tokens=0, **options).token_ids
    assert texts == [expected, expected]
