"""The walkthrough, run as a reader runs it; the other notebook, as far as that goes offline."""

import ast
from importlib import import_module

import pytest

from lab.docs.notebooks import DIGEST, FOLDER, WALKTHROUGH, code_digest, execute, read

OWN_PAIR = FOLDER / "your_own_pair.ipynb"


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook):
    """All that the outputs say."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            yield output.get("text", "")
            data = output.get("data", {})
            yield from (data.get(kind, "") for kind in ("text/plain", "text/markdown"))


@pytest.mark.deep
def test_the_walkthrough_runs_from_top_to_bottom():
    notebook = read(WALKTHROUGH)
    for cell in code_cells(notebook):
        cell.outputs = []
    execute(notebook)
    assert [cell.execution_count for cell in code_cells(notebook)] == list(
        range(1, len(code_cells(notebook)) + 1)
    )
    assert (
        sum("image/png" in o.get("data", {}) for c in code_cells(notebook) for o in c.outputs) == 4
    )


def test_the_committed_outputs_are_of_this_code():
    notebook = read(WALKTHROUGH)
    assert notebook.metadata.get(DIGEST) == code_digest(notebook), "run lab.docs.notebooks"
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_what_the_walkthrough_imports_of_the_package_is_there():
    code = "\n".join(cell.source for cell in code_cells(read(WALKTHROUGH)))
    froms = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    own = [(n.module, each.name) for n in froms for each in n.names if "ov_specdec" in n.module]
    assert ("ov_specdec", "SpeculativePipeline") in own
    assert [each for each in own if not hasattr(import_module(each[0]), each[1])] == []


@pytest.mark.deep
def test_a_pair_of_ones_own_is_exported_checked_tuned_and_served(capfd):
    notebook = read(OWN_PAIR)
    execute(notebook)
    said = "\n".join(texts(notebook))
    for part in ("vocabulary: same", "equal", "times as fast as plain decoding"):
        assert part in said, part
    *_, served = code_cells(notebook)
    assert served.outputs[0].text.strip()
