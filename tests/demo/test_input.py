"""Models of the demo that are wrong: as those of other commands, see `tests/cli/test_input.py`."""

import pytest

from tests.cli.test_input import AS_ARGUMENT, AS_OPTION, refused
from tests.support.command_line import run


@pytest.mark.parametrize("before", [AS_ARGUMENT, AS_OPTION])
@pytest.mark.parametrize("draft", [(), ("--draft", "/no/draft")])
def test_a_path_that_is_wrong_is_said_to_be_so_whatever_else_is_missing(draft, before):
    done = run("demo", *before, "/no/where", *draft)
    assert "'/no/where' does not exist: give the folder" in refused(done)


def test_a_draft_needs_a_main_model():
    done = run("demo", "--draft", "folder")
    assert refused(done) == "error: --draft folder needs --main: give that too\n"
