"""Writes what is made from the code and from figures, by `python -m tests.docs`."""

import ast
from itertools import groupby
from pathlib import Path

import ov_specdec
from tests.benchmarks.figures.results import Results
from tests.docs.figure_tables import PAGES, filled
from tests.docs.option_tables import KWARGS, OPTIONS, kwargs, options_page

PACKAGE = Path(ov_specdec.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"
MODULES = DOCS / "modules.md"

MODULES_INTRODUCTION = """\
# Modules

The first line of each module's docstring, written by `python -m tests.docs`. The layers are in
[architecture](architecture.md#the-layers).
"""


def modules() -> str:
    """The page of modules, package by package."""
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py"]
    folders = groupby(sorted(files, key=lambda path: (path.parent, path)), lambda path: path.parent)
    return "\n".join([MODULES_INTRODUCTION, *(_package(list(paths)) for _, paths in folders)])


def _package(files: list[Path]) -> str:
    """A package's own line, and a table of its modules. files: its `__init__.py` first."""
    own, *others = files
    name = ".".join(own.parent.relative_to(PACKAGE.parent).parts)
    modules = [path.relative_to(PACKAGE).with_suffix("").as_posix() for path in others]
    rows = [f"| `{module}` | {_line(path)} |" for module, path in zip(modules, others, strict=True)]
    head = ("| module | purpose |", "|---|---|")
    return "\n".join([f"## {name}\n", f"{_line(own)}\n", *head, *rows, ""])


def _line(module: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


if __name__ == "__main__":
    OPTIONS.write_text(options_page(), encoding="utf-8")
    KWARGS.write_text(kwargs(), encoding="utf-8")
    MODULES.write_text(modules(), encoding="utf-8")
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), Results.all()), encoding="utf-8")
