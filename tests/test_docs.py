"""The documents keep step with the code."""

import re
from pathlib import Path

import pytest

from tests.docs import CLI_REFERENCE, cli_reference

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "models").rglob("*.md")),
]


def test_the_command_line_reference_is_what_the_commands_say():
    assert CLI_REFERENCE.read_text(encoding="utf-8") == cli_reference(), "run: python -m tests.docs"


def test_ci_runs_the_lines_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = script.partition("set -x\n")[2].splitlines()
    assert len(lines) >= 3
    for line in lines:
        assert line in readme


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def test_lines_of_the_reference_fit():
    for line in CLI_REFERENCE.read_text(encoding="utf-8").splitlines():
        assert len(line) < 120, line


def test_the_reference_gives_every_option_once_where_two_commands_share_it():
    text = cli_reference()
    for option in ("--max-new-tokens N  ", "--drafter [", "--prompt-file F  ", "--top-k N "):
        in_bench = option.startswith(("--max-new-tokens", "--prompt-file"))
        assert text.count(option) == 1 + in_bench
