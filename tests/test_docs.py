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


@pytest.mark.parametrize("document", OUTSIDE_THE_SITE, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target
