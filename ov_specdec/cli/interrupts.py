"""Ctrl-C without an exception."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ov_specdec.cli.messages import INTERRUPTED


@contextmanager
def interrupts_end_the_process() -> Iterator[None]:
    """Let Ctrl-C end the process at once, with one line on stderr and no exception.

    For imports: a KeyboardInterrupt within one may surface as an ImportError of an extension, or
    leave a lock that blocks OpenVINO's telemetry thread for ever.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # the parent process handles or ignores it
        return
    process = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() == process:  # not in a child that a library forked
            os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def interrupts_call(function: Callable[[], object]) -> Iterator[None]:
    """Let Ctrl-C call a function, and do nothing else."""
    before = signal.signal(signal.SIGINT, lambda *_: function())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
