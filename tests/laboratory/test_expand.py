"""`expand` from its command line to a model that decodes, with Optimum's real export."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ov_specdec
from ov_specdec import SpeculativePipeline
from ov_specdec.models.exported import read_ir
from ov_specdec.models.folder import ModelFolder, read_json
from ov_specdec.models.locate import embedded_folder
from tests import benchmarks
from tests.benchmarks.__main__ import main
from tests.benchmarks.expansion.ir_weights import read_weights
from tests.benchmarks.expansion.shape import LlamaShape
from tests.support import command_line

pytestmark = pytest.mark.deep

run = partial(command_line.run, main=main)

ORIGINAL = embedded_folder("draft")
"""The smallest trained model at hand, in int8: 2 layers, expanded to 12 wider ones."""

PACKAGE = Path(ov_specdec.__file__).parent
EXPANSION = Path(benchmarks.__file__).parent / "expansion"
COMMAND = Path(benchmarks.__file__).parent / "expand.py"
NAME = "draft-expanded-30m-int8"


def expand(output):
    """Run the command in a process of its own; what it printed goes into a file."""
    command = [sys.executable, "-m", "tests.benchmarks", "expand", ORIGINAL, "--size", "30M"]
    done = subprocess.run(
        [*command, "--output", output / "models"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (output / "models").iterdir()] == [NAME]
    where, _, rest = done.stdout.partition("\n")
    assert where == str(output / "models" / NAME)
    (output / "printed.txt").write_text(rest, encoding="utf-8")


@pytest.fixture(scope="module")
def expanded(shelf, tmp_path_factory):
    """The folder of the expanded model, and what the command printed about it."""
    target = tmp_path_factory.mktemp("expand") / "made"
    made = shelf.copy(
        "expanded", expand, target, Path(__file__), PACKAGE, EXPANSION, COMMAND, ORIGINAL
    )
    return made / "models" / NAME, (made / "printed.txt").read_text(encoding="utf-8")


def test_the_integers_of_the_weights_are_those_of_the_original(expanded):
    shapes = [
        LlamaShape.from_config(read_json(folder / "config.json"))
        for folder in (ORIGINAL, expanded[0])
    ]
    original, larger = (
        read_weights(read_ir(ModelFolder.read(folder)), shape)
        for folder, shape in zip((ORIGINAL, expanded[0]), shapes, strict=True)
    )
    for name, weights in original.items():
        if weights.ndim > 1:
            rows, columns = weights.shape
            np.testing.assert_array_equal(larger[name][:rows, :columns], weights, err_msg=name)


def test_no_two_constants_are_alike(expanded):
    model = read_ir(ModelFolder.read(expanded[0]))
    constants = [
        op.get_data().tobytes()
        for op in model.get_ops()
        # Masks and the like are small, and the same in any model.
        if op.get_type_name() == "Constant" and op.get_byte_size() >= 1024
    ]
    assert len(constants) > 7 * 12
    assert len(set(constants)) == len(constants)


@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_it_decodes_as_the_original_does(expanded, kv):
    original, larger = (
        SpeculativePipeline(folder, drafter="prompt-lookup", kv=kv, precision="exact")
        for folder in (ORIGINAL, expanded[0])
    )
    run = {"max_new_tokens": 128, "ignore_eos": True}
    texts = [pipeline.generate("def area(", **run).token_ids for pipeline in (original, larger)]
    assert len(texts[0]) == 128
    assert texts[0] == texts[1]
