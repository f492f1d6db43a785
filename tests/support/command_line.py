"""A command line in this process: as fast as a function call, as real as its entry point."""

import io
import re
import sys
from dataclasses import dataclass

import pytest

from ov_specdec.cli import main


@dataclass(frozen=True)
class Done:
    """What a run of the command came to."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments, main=main, stdin=b"", cwd=None, encoding="utf-8", env=None):
    """Run `ov-specdec` or another main with arguments. stdin: bytes, or None for a terminal."""
    streams = {
        "stdin": io.TextIOWrapper(Terminal() if stdin is None else io.BytesIO(stdin)),
        "stdout": io.TextIOWrapper(io.BytesIO(), encoding),
        "stderr": io.TextIOWrapper(io.BytesIO(), encoding, errors="backslashreplace"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ov-specdec", *map(str, arguments)])
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        for name, value in (env or {}).items():
            patch.setenv(name, str(value))
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as end:
            main()
    written = []
    for name in ("stdout", "stderr"):
        streams[name].flush()
        written.append(streams[name].buffer.getvalue().decode(encoding))
    return Done(end.value.code or 0, *written)


class Terminal(io.BytesIO):
    """A stdin at which somebody sits who types nothing."""

    def isatty(self):
        return True


def refused(done):
    """The message of a run that was refused."""
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch("error: .*\n", done.stderr)
    return done.stderr


AS_ARGUMENT, AS_OPTION = (), ("--main",)
