"""Which cores the processes of the tests run on."""

import os
from contextlib import contextmanager


def keep_to_one_core(number):
    """Keep this process, and all that it starts from now on, on one of its cores.

    OpenVINO, torch and numpy take as many threads as a process has cores, once and for good; two
    processes with threads for every core would fight for them.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


@contextmanager
def every_core():
    """Let the processes that are started in here have every core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count()))
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
