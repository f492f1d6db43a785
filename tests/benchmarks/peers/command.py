"""`python -m tests.benchmarks peers`: this project's ways to decode and other frameworks'."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from ov_specdec.cli.bench import progress
from ov_specdec.cli.messages import end_interrupted
from ov_specdec.cli.terminal import with_errors
from ov_specdec.errors import OptionError
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.text.tokenizer import load_tokenizer
from tests.benchmarks.peers.concurrency import LoadOutcome, LoadPlan, num_tasks, run_loads
from tests.benchmarks.peers.concurrency_report import ConcurrencyReport
from tests.benchmarks.peers.environment import describe_environment
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.options import Request, peers_options
from tests.benchmarks.peers.plots import plot_concurrency, plot_speed
from tests.benchmarks.peers.process import WorkerProcess, engine_request, load_request
from tests.benchmarks.peers.prompts import encode_prompts, mixed_prompts, require_room
from tests.benchmarks.peers.report import Report
from tests.benchmarks.peers.runner import Outcome, Schedule, run_methods
from tests.benchmarks.peers.summary import summarize

PROGRAM = "python -m tests.benchmarks"


@click.command()
@with_errors
@peers_options
def peers(request: Request) -> None:
    """Measure this project's ways to decode and other frameworks on the same models.

    The table goes to stdout; the table, JSON, CSV and a plot to the --output folder. How to read
    them, and what each method is: docs/benchmarking.md.
    """
    with TemporaryDirectory() as scratch:
        _measure(replace(request, setup=replace(request.setup, scratch=scratch)))


def _measure(request: Request) -> None:
    """Measure what was asked for, show it and write it."""
    prompts = _encode(request)
    environment = describe_environment(request.setup, PROGRAM)
    _make_folder(request.output)
    if request.concurrency:
        _measure_loads(request, prompts, environment)
    else:
        _measure_methods(request, prompts, environment)


def _encode(request: Request) -> list[list[int]]:
    """The prompts as token ids; `OptionError` where the context has no room for one."""
    folder = ModelFolder.read(Path(request.setup.main))
    tokenizer = load_tokenizer(folder.path)
    if request.mix:
        prompts = mixed_prompts(tokenizer, request.prompts)
    else:
        prompts = encode_prompts(tokenizer, request.prompts, request.context)
    require_room(prompts, request.plan.max_new_tokens, folder.context_length)
    return prompts


def _measure_loads(
    request: Request, prompts: Sequence[Sequence[int]], environment: Mapping[str, Any]
) -> None:
    """The benchmark with --concurrency."""
    plan = LoadPlan(
        prompts,
        request.concurrency,
        request.arrivals,
        request.plan.rounds,
        request.plan.max_new_tokens,
        request.timeout,
    )
    num_loads = len(request.methods) * (1 + num_tasks(plan))
    with progress("Loads", num_loads) as step:
        loads = {
            method.name: engine_request(method.name, request.setup) for method in request.methods
        }
        outcome = run_loads(WorkerProcess, loads, plan, step)
    outcome.frameworks = _frameworks(request)
    schedule = {**_schedule(request, outcome), "arrivals": request.arrivals, "mix": request.mix}
    report = ConcurrencyReport(environment, schedule, outcome, request.baseline)
    files = report.write(request.output)
    click.echo(report.markdown(), nl=False)
    _require_runs(outcome, request.output)
    with _without_plots():
        files.append(plot_concurrency(request.output / "concurrency.png", report.rows))
    click.echo(f"written to {request.output}: {' '.join(f.name for f in files)}", err=True)


def _require_runs(outcome: Outcome | LoadOutcome, output: Path) -> None:
    """End the command where nothing was measured, or the user wants no more of it."""
    if outcome.is_interrupted:
        end_interrupted(f"interrupted: {len(outcome.runs)} runs are written to {output}")
    if not outcome.runs:
        raise BenchmarkError("no method ran to its end: the reasons are above")


def _make_folder(output: Path) -> None:
    """Make the report's folder, before an hour of measuring ends in having no place."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"--output '{output}' cannot be written ({error.strerror}): give another folder"
        ) from error


def _measure_methods(
    request: Request, prompts: Sequence[Sequence[int]], environment: Mapping[str, Any]
) -> None:
    """The benchmark of single requests."""
    plan = request.plan
    turns = Schedule(prompts, plan.rounds, plan.max_new_tokens, request.timeout)
    num_runs = len(request.methods) * (1 + plan.rounds * len(prompts))
    with progress("Methods", num_runs) as step:
        loads = {
            method.name: load_request(method.name, request.setup) for method in request.methods
        }
        outcome = run_methods(WorkerProcess, loads, turns, step)
    outcome.frameworks = _frameworks(request)
    report = Report(environment, _schedule(request, outcome), outcome, request.baseline)
    files = report.write(request.output)
    click.echo(report.markdown(), nl=False)
    _require_runs(outcome, request.output)
    with _without_plots():
        files.append(plot_speed(request.output / "speed.png", summarize(outcome)))
    click.echo(f"written to {request.output}: {' '.join(f.name for f in files)}", err=True)


def _frameworks(request: Request) -> dict[str, str]:
    """Whose the methods are, by name."""
    return {method.name: method.family.framework for method in request.methods}


@contextmanager
def _without_plots() -> Iterator[None]:
    """Go on where plots cannot be drawn, with a word on stderr."""
    try:
        yield
    except BenchmarkError as error:
        click.echo(f"no plots: {error}", err=True)


def _schedule(request: Request, outcome: Outcome | LoadOutcome) -> dict[str, Any]:
    """How it was measured, as names and values for the report."""
    interrupted = {"interrupted": True} if outcome.is_interrupted else {}
    return {
        "prompts": len(request.prompts),
        "context": request.context,
        "max_new_tokens": request.plan.max_new_tokens,
        "rounds": request.plan.rounds,
        **interrupted,
    }
