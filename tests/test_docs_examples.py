"""The Python examples of the documents run as they are written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

OF_A_CLIENT = "from openai"
"""How a block begins that needs a server: the tests of the server run it, as its page has it."""


def examples(document):
    """The Python blocks of a document, below as many empty lines as there are lines above."""
    text = document.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if not match.group(1).startswith(OF_A_CLIENT):
            yield "\n" * text[: match.start(1)].count("\n") + match.group(1)


def run(document):
    """Execute all blocks in one namespace, from the repository's root; returns the namespace."""
    namespace = {"__name__": "example"}
    for source in examples(document):
        exec(compile(source, str(document), "exec"), namespace)  # noqa: S102
    return namespace


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_guide_runs_from_top_to_bottom(capsys):
    namespace = run(ROOT / "docs" / "guide.md")
    printed = capsys.readouterr().out
    assert "unknown option 'max_tokens': did you mean max_new_tokens?\n" in printed
    assert "\ncancelled\n" in printed
    assert "this pipeline is closed" in printed
    assert namespace["plain"].stats.tokens_per_main_pass == 1.0
    assert namespace["fixed"].stats.drafted > 0


def test_the_readme_runs(capsys):
    namespace = run(ROOT / "README.md")
    printed = capsys.readouterr().out
    assert namespace["result"].text in printed
    assert re.search(r"\d+% accepted, \d+ tokens/s", printed)
