"""Models of the demo that are wrong: as those of other commands, see `tests/cli/test_input.py`."""

from tests.cli.test_input import AS_ARGUMENT, AS_OPTION, refused
from tests.support.command_line import run


def test_wrong_models_are_refused_as_elsewhere():
    for before in (AS_ARGUMENT, AS_OPTION):
        done = run("demo", *before, "/no/where", "--draft", "/no/draft")
        assert "'/no/where' does not exist: give the folder" in refused(done)
    done = run("demo", "--draft", "folder")
    assert refused(done) == "error: --draft folder needs --main: give that too\n"
