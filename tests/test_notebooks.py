"""The walkthrough, run as a reader runs it; the other notebook, as far as that goes offline."""

import ast
import builtins
import importlib
import inspect
import re

import pytest

from ov_specdec import GenerationOptions, SpeculativePipeline
from tests.notebooks import DIGEST, FOLDER, WALKTHROUGH, code_digest, execute, read

HUB = FOLDER / "hub_models.ipynb"
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
    assert notebook.metadata.get(DIGEST) == code_digest(notebook), "run python -m tests.notebooks"
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_the_outputs_hold_no_warnings_and_no_paths():
    notebook = read(WALKTHROUGH)
    shown = list(texts(notebook))
    assert len("".join(shown)) > 1000
    for cell in code_cells(notebook):
        assert all(output.get("name") != "stderr" for output in cell.outputs)
    assert not [text for text in shown if re.search(r"(^|[\s'\"(])/(\w+/)+", text)]
    assert WALKTHROUGH.stat().st_size < 700_000


def test_no_measured_number_is_typed_into_the_prose():
    prose = "\n".join(c.source for c in read(WALKTHROUGH).cells if c.cell_type == "markdown")
    unit = r"\d+(\.\d+)?\s*(ms|milliseconds|tokens/s|tokens per second|times as|GB|%)"
    assert not re.search(unit, prose)


@pytest.mark.parametrize("path", [WALKTHROUGH, HUB, OWN_PAIR], ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    prose = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)#]+)\)", prose)
    assert targets
    for target in targets:
        assert target.startswith("https://") or (FOLDER / target).exists(), target


@pytest.mark.parametrize("path", [HUB, OWN_PAIR], ids=lambda path: path.stem)
def test_the_others_are_committed_without_outputs(path):
    assert all(not c.outputs and c.execution_count is None for c in code_cells(read(path)))


@pytest.mark.deep
def test_a_pair_of_ones_own_is_exported_checked_tuned_and_served(capfd):
    notebook = read(OWN_PAIR)
    execute(notebook)
    said = "\n".join(texts(notebook))
    for part in ("vocabulary: same", "equal", "tokens/s"):
        assert part in said, part
    *_, served = code_cells(notebook)
    assert served.outputs[0].text.strip()


def test_what_the_hub_notebook_uses_exists():
    tree = ast.parse("\n".join(cell.source for cell in code_cells(read(HUB))))
    known = {*inspect.signature(SpeculativePipeline).parameters}
    known |= {*inspect.signature(GenerationOptions).parameters}
    names = {*vars(builtins)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            assert node.id in names, node.id
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(
            ("pipeline.", "SpeculativePipeline")
        ):
            assert {keyword.arg for keyword in node.keywords} <= known, ast.unparse(node)
