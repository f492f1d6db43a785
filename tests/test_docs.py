"""The documents keep step with the code."""

import re
from pathlib import Path

import pytest

from tests.docs import CLI_REFERENCE, cli_reference

ROOT = Path(__file__).parent.parent
OUTSIDE_THE_SITE = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "models").rglob("*.md"))]
"""Documents that mkdocs does not look at, so that it does not check their links."""


def test_the_command_line_reference_is_what_the_commands_say():
    assert CLI_REFERENCE.read_text(encoding="utf-8") == cli_reference(), "run: python -m tests.docs"


def test_ci_runs_the_lines_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    work = readme.partition("## Work on it\n\n```sh\n")[2].partition("```")[0].splitlines()
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = script.partition("set -x\n")[2].replace("\\\n", "").splitlines()
    lines = [line.strip() for line in commands]
    shown = ['pip install . && ov-specdec generate "class Stack:"', *work]
    assert shown[0] in readme
    remaining = iter(lines)  # in this order; CI adds options, and lines of its own
    for beginning in shown:
        assert any(line.startswith(beginning) for line in remaining), beginning
    for line in lines:  # what fails on the left of `&&` ends no script
        assert "&&" not in line or line.endswith("|| exit"), line


@pytest.mark.parametrize("document", OUTSIDE_THE_SITE, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target
