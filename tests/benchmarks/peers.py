"""`python -m tests.benchmarks peers`: `ov-specdec bench` with other frameworks beside it."""

import sys
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory

import click

from ov_specdec.bench.process import WorkerProcess
from ov_specdec.cli.bench import measure
from ov_specdec.cli.bench_options import Request, bench_options
from ov_specdec.cli.terminal import with_errors
from tests.benchmarks.frameworks.methods import ALL

WORKER_COMMAND = (sys.executable, "-m", "tests.benchmarks.frameworks.worker")


@click.command()
@with_errors
@bench_options(ALL)
def peers(request: Request) -> None:
    """Measure this project's ways to decode and other frameworks on the same models.

    As `ov-specdec bench` does it; what each method is: docs/benchmarking.md.
    """
    with TemporaryDirectory() as scratch:
        asked = replace(request, setup=replace(request.setup, scratch=scratch))
        measure(asked, partial(WorkerProcess, WORKER_COMMAND), "python -m tests.benchmarks")
