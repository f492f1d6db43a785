"""Runs the walkthrough and keeps what it shows: `python -m lab.docs.notebooks`."""

import hashlib
import os
import sys
from pathlib import Path

import click
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
WALKTHROUGH = FOLDER / "speculative_decoding.ipynb"
DIGEST = "code_digest"
"""Where the notebook's metadata say which code its outputs are of."""


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook; nbformat's error where it is none."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_digest(notebook: nbformat.NotebookNode) -> str:
    """A digest of all code cells, in their order."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run all cells in a fresh kernel; the first error is raised."""
    # Tools that cells start must come from the environment that runs this.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute(env={**os.environ, "PATH": path})


def normalize(notebook: nbformat.NotebookNode) -> None:
    """Leave out what differs from run to run without meaning: times, versions, widget ids."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            DIGEST: code_digest(notebook),
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = nbformat.from_dict({})
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data.pop("application/vnd.jupyter.widget-view+json", None)


@click.command()
def main() -> None:
    """Execute the walkthrough and write it back with its outputs."""
    notebook = read(WALKTHROUGH)
    execute(notebook)
    normalize(notebook)
    nbformat.write(notebook, WALKTHROUGH)
    click.echo(WALKTHROUGH.relative_to(FOLDER.parent))


if __name__ == "__main__":
    main()
