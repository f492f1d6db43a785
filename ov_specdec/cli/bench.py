"""`ov-specdec bench`: measure decoding methods of one pair in interleaved runs."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from rich.console import Console

from ov_specdec.bench.methods import Method, select_methods
from ov_specdec.bench.pipelines import check_prompts, make_ways, open_pipelines
from ov_specdec.bench.plot import plot_ratios
from ov_specdec.bench.prompts import PROMPT_SETS, read_prompts
from ov_specdec.bench.report import make_report, make_table
from ov_specdec.bench.summary import Row, summarize
from ov_specdec.bench.turns import Run, Schedule, Way, run_interleaved
from ov_specdec.cli.declare import options_of, own_options, take
from ov_specdec.cli.messages import end_interrupted, fail, say
from ov_specdec.cli.models import MODELS, PIPELINE, RUNTIME
from ov_specdec.cli.terminal import console, progress, with_errors
from ov_specdec.description import About
from ov_specdec.drafters.factory import WITH_DRAFT
from ov_specdec.errors import Option, OptionError, SpecdecError, install
from ov_specdec.files import replacing
from ov_specdec.loading.locate import check_place

METHODS = "plain,adaptive,constant-2,constant-4,constant-8,suffix,prompt-lookup,both"
QUICK = {"methods": "plain,adaptive,constant-4", "rounds": 1, "max_new_tokens": 32}
"""Defaults of other options with --quick."""

GENERATION = {"ignore_eos": True, "cache_prompt": False}
"""Options of all generations: equal lengths, and a full prefill."""

CTRL_C = "Ctrl-C"
PIPED_WIDTH = 160
"""Width of the table if stdout is not a terminal: enough for all columns."""


def _take_quick(context: click.Context, _: click.Parameter, is_quick: bool) -> None:
    if is_quick:
        context.default_map = QUICK


@click.command()
@with_errors
@click.option(
    "--quick",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_take_quick,
    help="Measure fewer methods, rounds and tokens, as a trial.",
)
@own_options
@options_of(PIPELINE, *MODELS, *RUNTIME, "static_shapes")
def bench(
    *,
    methods: Annotated[
        str,
        About(
            "Methods to measure; constant-N drafts N tokens in each round, and plain always runs.",
            metavar="M,M,...",
        ),
    ] = METHODS,
    prompt_set: Annotated[
        Literal["code", "quoting"] | None,
        About(
            "Prompts to continue; the output for quoting repeats the prompt.",
            unset="code",
            flag="prompts",
        ),
    ] = None,
    prompt_file: Annotated[
        Path | None,
        About('Read prompts from a file: one per line, or objects with "prompt" in a .jsonl file.'),
    ] = None,
    concurrency: Annotated[str, About("Numbers of concurrent requests.", metavar="N,N,...")] = "1",
    rounds: Annotated[int, About("Runs of each prompt.", low=1)] = 5,
    max_new_tokens: Annotated[int, About("Output tokens of each request.", low=1)] = 128,
    output: Annotated[
        Path, About("Write all results to this file as JSON, and the plot beside it as .png.")
    ] = Path("benchmark.json"),
    **options: Any,
) -> None:
    """Measure the speed of plain and speculative decoding, in interleaved runs.

    The table goes to stdout. docs/benchmarking.md explains its methods and columns.
    """
    selected = select_methods(methods.split(","))
    prompts = _find_prompts(prompt_set, prompt_file)
    schedule = Schedule(prompts, _parse_numbers(concurrency), rounds)
    arguments = {**take(options, PIPELINE), "max_batch_size": max(schedule.concurrency)}
    _require_draft(selected, arguments)
    if output.suffix != ".json":
        raise OptionError(f"--output '{output}' must end in .json, because the plot takes .png")

    with replacing(output) as file:  # fails early if the file cannot be written
        with console.status("Loading models and timing their passes"):
            pipelines = open_pipelines(selected, arguments, say)
        check_prompts(pipelines, prompts)
        generation = {"max_new_tokens": max_new_tokens, **GENERATION}
        runs, ended_by = _measure(make_ways(selected, pipelines, generation), schedule)
        settings = {"ended_by": ended_by, **asdict(schedule), **generation}
        report = make_report(runs, pipelines, {**settings, **arguments})
        file.write_text(json.dumps(report, default=str), encoding="utf-8")
    rows = summarize(runs)
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(make_table(rows))
    partial = "" if ended_by is None else f"; partial: ended by {ended_by}"
    click.echo(f"medians (quartiles), {report['machine']}{partial}")
    say(f"written to {output}{_plot(output.with_suffix('.png'), rows)}")
    if ended_by is not None:
        said = f"ended by {ended_by}: the results so far are in {output}"
        if ended_by == CTRL_C:
            end_interrupted(said)
        fail(said)


def _find_prompts(prompt_set: str | None, file: Path | None) -> tuple[str, ...]:
    if prompt_set is not None and file is not None:
        raise OptionError(f"give --prompts '{prompt_set}' or --prompt-file '{file}', not both")
    return PROMPT_SETS[prompt_set or "code"] if file is None else read_prompts(file)


def _parse_numbers(given: str) -> tuple[int, ...]:
    """The numbers of `--concurrency`, sorted, each once."""
    numbers = given.split(",")
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise OptionError(Option("concurrency", given), " must be whole numbers above 0: 1,2,4")
    return tuple(sorted(set(map(int, numbers))))


def _require_draft(methods: Sequence[Method], arguments: Mapping[str, Any]) -> None:
    """Refuse a main model without a draft for methods that need one, in terms of `bench`."""
    names = [method.name for method in methods if method.drafter in WITH_DRAFT]
    if names and arguments["main"] is not None and arguments["draft"] is None:
        check_place(arguments["main"])
        raise OptionError(
            "no draft model for ",
            Option("main", arguments["main"]),
            f": give --draft, or --methods without {', '.join(names)}",
        )


def _measure(ways: Mapping[str, Way], schedule: Schedule) -> tuple[list[Run], str | None]:
    """The runs, and the cause of an early end: Ctrl-C, or the error of a generation."""
    runs: list[Run] = []
    try:
        with progress("Measuring", len(ways) * schedule.num_turns) as update:

            def step(now: str) -> None:
                update(advance=1, description=f"Measuring: {now}")

            for run in run_interleaved(ways, schedule, step):
                runs.append(run)  # noqa: PERF402 - an error must not lose them
    except (KeyboardInterrupt, SpecdecError) as error:
        if not runs:
            raise
        return runs, str(error) or CTRL_C
    return runs, None


def _plot(file: Path, rows: Sequence[Row]) -> str:
    """Draw the plot. Returns the message about it."""
    try:
        plot_ratios(file, rows)
    except ImportError:
        return f"; no plot without matplotlib: {install('bench')}"
    return f" and {file}"
