"""Early ends of a command, Ctrl-C too: one line on stderr, and an exit code."""

import errno
import os
import sys
from contextlib import suppress
from typing import NoReturn

USER_ERROR = 2
"""Exit code after an error that the user can remedy."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as for any process that SIGINT ends."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of the operating system for a full output."""


def fail(message: str) -> NoReturn:
    """Print an error in one line, and exit."""
    say(f"error: {message}")
    sys.exit(USER_ERROR)


def end_interrupted(message: str = "interrupted") -> NoReturn:
    """Print one line about Ctrl-C, and exit."""
    say(message)
    sys.exit(INTERRUPTED)


def say(message: str) -> None:
    """Print one line on stderr."""
    with suppress(OSError):  # a full disk behind stderr: only the exit code remains
        print(" ".join(message.split()), file=sys.stderr, flush=True)  # noqa: T201


def fail_to_write(error: OSError) -> NoReturn:
    """Exit with one line if a device is full or a file cannot be used; raise other errors."""
    if error.filename is not None:
        fail(f"'{error.filename}' cannot be used ({error.strerror}): give another path")
    if error.errno not in FULL:
        raise error
    discard_stdout()
    fail(f"the output cannot be written ({error.strerror}): free space, or write it elsewhere")


def discard_stdout() -> None:
    """Drop unprinted output: otherwise Python would report the same error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
