"""Ctrl-C where it is not to raise an exception."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ov_specdec.cli.messages import INTERRUPTED


@contextmanager
def interrupts_end_the_process() -> Iterator[None]:
    """Let Ctrl-C end the process at once, with one line on stderr, in place of an exception.

    For imports: a KeyboardInterrupt in the middle of one may come out as an ImportError of some
    extension, or leave a lock behind for which OpenVINO's telemetry thread then waits for ever.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # whoever started the process handles or ignores it
        return
    process = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() == process:  # not in a child that a library has forked meanwhile
            os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def interrupts_call(function: Callable[[], object]) -> Iterator[None]:
    """Have Ctrl-C call a function, and do nothing else."""
    before = signal.signal(signal.SIGINT, lambda *_: function())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
