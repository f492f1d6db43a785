"""Single requests on a machine that is busy with other work."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from lab.benchmarks import priority
from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.requests import requests
from lab.benchmarks.measuring import Measurements

OPEN = ("conversation", "qa", "math_reasoning", "held-out")
"""Tasks whose outputs hardly quote: a draft there costs more often than it gains."""

NUMBER = 24
"""Prompts of a set, of which the open ones are measured."""

LOOP = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""It ends with whoever has started it."""


def busy(given: Given, pairs: Sequence[str], methods: Sequence[str], tokens: int) -> Measurements:
    """Open prompts of each pair, greedy, beside a loop on each core, all at the usual priority."""
    priority.change_all(priority.USUAL)
    try:
        for pair in given.known(pairs):
            measurements = requests(given, pair, methods, (0.0,), tokens, 1, number=NUMBER)
            with closing(measurements), ExitStack() as loops:
                for number, (key, measure) in enumerate(measurements):
                    if number == 0:  # models are loaded and prepared by now
                        loops.enter_context(loop_on_each_core())
                    if key["task"] in OPEN:
                        yield key, measure
    finally:
        priority.change_all(given.priority)


@contextmanager
def loop_on_each_core() -> Iterator[None]:
    """Processes that compute without end, as many as there are cores."""
    command = (sys.executable, "-c", LOOP)
    processes = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
