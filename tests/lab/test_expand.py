"""`expand` from its command line to a model that decodes, with Optimum's real export."""

import pytest

from lab.benchmarks.__main__ import main
from lab.benchmarks.expansion.shape import LlamaShape, fit_shape, parse_size
from ov_specdec import SpeculativePipeline
from ov_specdec.models.exported import read_ir
from ov_specdec.models.folder import ModelFolder, read_json
from ov_specdec.models.locate import embedded_folder
from tests.support.command_line import run

pytestmark = pytest.mark.deep

ORIGINAL = embedded_folder("draft")
"""The smallest trained model at hand, in int8: 2 layers, expanded to 12 wider ones."""


@pytest.fixture(scope="module")
def expanded(tmp_path_factory):
    """The folder of the expanded model, whose logits the command has compared."""
    output = tmp_path_factory.mktemp("expand")
    done = run("expand", ORIGINAL, "--size", "30M", "--output", output, main=main)
    folder = output / "draft-expanded-30m-int8"
    assert done.stdout == f"{folder}\n29,894,016 parameters\n", done.stderr
    assert [*output.iterdir()] == [folder]
    return folder


def test_no_two_constants_are_alike(expanded):
    model = read_ir(ModelFolder.read(expanded))
    constants = [
        op.get_data().tobytes()
        for op in model.get_ops()
        # Masks and the like are small, and the same in any model.
        if op.get_type_name() == "Constant" and op.get_byte_size() >= 1024
    ]
    assert len(constants) > 7 * 12
    assert len(set(constants)) == len(constants)


def test_it_decodes_as_the_original_does(expanded):
    original, larger = (
        SpeculativePipeline(folder, drafter="prompt-lookup", precision="exact")
        for folder in (ORIGINAL, expanded)
    )
    run = {"max_new_tokens": 128, "ignore_eos": True}
    texts = [pipeline.generate("def area(", **run).token_ids for pipeline in (original, larger)]
    assert len(texts[0]) == 128
    assert texts[0] == texts[1]


@pytest.mark.parametrize("size", ["100M", "0.3B", "1B", "3000000000"])
def test_a_shape_comes_close_to_the_size_and_holds_the_model(size):
    live = LlamaShape.from_config(read_json(embedded_folder("main") / "config.json"))
    shape = fit_shape(live, parse_size(size))
    assert shape.num_parameters == pytest.approx(parse_size(size), rel=0.02)
    for field in ("hidden", "intermediate", "layers", "heads", "kv_heads"):
        assert getattr(shape, field) >= getattr(live, field)
    assert shape.heads * live.kv_heads == shape.kv_heads * live.heads
    assert shape.hidden % shape.heads == 0
