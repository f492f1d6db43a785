"""`ov-specdec bench`: the ways of one pair to decode, in turns, on this machine."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from ov_specdec.bench.methods import Method, select_methods
from ov_specdec.bench.pipelines import check_prompts, make_ways, open_pipelines
from ov_specdec.bench.plot import plot_ratios
from ov_specdec.bench.prompts import PROMPT_SETS, read_prompts
from ov_specdec.bench.report import make_report, make_table
from ov_specdec.bench.summary import Row, summarize
from ov_specdec.bench.turns import Run, Schedule, Way, run_interleaved
from ov_specdec.checks import require_int
from ov_specdec.cli.messages import end_interrupted, fail, say
from ov_specdec.cli.options import (
    MODEL_OPTIONS,
    RUNTIME_OPTIONS,
    STATIC_SHAPES_OPTION,
    pop_pipeline,
    with_options,
)
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.drafters.factory import WITH_DRAFT
from ov_specdec.errors import Option, OptionError, SpecdecError, install
from ov_specdec.files import replacing
from ov_specdec.loading.locate import check_place

METHODS = "plain,adaptive,constant-2,constant-4,constant-8,suffix,prompt-lookup,both"
QUICK = {"methods": "plain,adaptive,constant-4", "rounds": 1, "max_new_tokens": 32}
"""Defaults with --quick."""

GENERATION = {"ignore_eos": True, "cache_prompt": False}
"""Options of all generations: of one length, and each reads all of its prompt."""

CTRL_C = "Ctrl-C"
PIPED_WIDTH = 160
"""Of the table where stdout is no terminal: enough for all of it."""


def _take_quick(context: click.Context, _: click.Parameter, is_quick: bool) -> None:
    if is_quick:
        context.default_map = QUICK


@click.command()
@with_errors
@click.option(
    "--methods",
    metavar="M,M,...",
    default=METHODS,
    show_default=True,
    help="Ways to decode; N of constant-N is any length, and plain always runs.",
)
@click.option(
    "--quick",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_take_quick,
    help="Fewer methods, rounds and tokens: to see it work.",
)
@click.option(
    "--prompts",
    "prompt_set",
    type=click.Choice(list(PROMPT_SETS)),
    help="quoting: the continuation quotes the prompt. [code]",
)
@click.option(
    "--prompt-file",
    type=click.Path(path_type=Path),
    metavar="F",
    help='Other prompts: one per line; in .jsonl files, objects with "prompt".',
)
@click.option(
    "--concurrency",
    metavar="N,N,...",
    default="1",
    show_default=True,
    help="How many requests come together.",
)
@click.option(
    "--rounds", type=int, metavar="N", default=5, show_default=True, help="Runs per prompt."
)
@click.option(
    "--max-new-tokens",
    type=int,
    metavar="N",
    default=128,
    show_default=True,
    help="Tokens per request.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    default=Path("benchmark.json"),
    show_default=True,
    help="Where everything goes as JSON; the plot goes beside it, as .png.",
)
@with_options((*MODEL_OPTIONS, *RUNTIME_OPTIONS, STATIC_SHAPES_OPTION))
def bench(
    methods: str,
    prompt_set: str | None,
    prompt_file: Path | None,
    concurrency: str,
    rounds: int,
    max_new_tokens: int,
    output: Path,
    **options: Any,
) -> None:
    """Measure plain decoding and this project's ways to speculate, in turns.

    The table goes to stdout. What the methods and columns are: docs/benchmarking.md.
    """
    require_int("rounds", rounds, low=1)
    require_int("max_new_tokens", max_new_tokens, low=1)
    selected = select_methods(methods.split(","))
    prompts = _find_prompts(prompt_set, prompt_file)
    schedule = Schedule(prompts, _parse_numbers(concurrency), rounds)
    arguments = {**pop_pipeline(options), "max_batch_size": max(schedule.concurrency)}
    _require_draft(selected, arguments)
    if output.suffix != ".json":
        raise OptionError(f"--output '{output}' must end in .json: the plot goes beside it")

    with replacing(output) as file:  # tells at once whether there is a place for it
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
        said = f"ended by {ended_by}: what was measured until then is in {output}"
        if ended_by == CTRL_C:
            end_interrupted(said)
        fail(said)


def _find_prompts(prompt_set: str | None, file: Path | None) -> tuple[str, ...]:
    if prompt_set is not None and file is not None:
        raise OptionError(f"give --prompts '{prompt_set}' or --prompt-file '{file}', not both")
    return PROMPT_SETS[prompt_set or "code"] if file is None else read_prompts(file)


def _parse_numbers(given: str) -> tuple[int, ...]:
    """The numbers of `--concurrency`, each once, the least first."""
    numbers = given.split(",")
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise OptionError(Option("concurrency", given), " must be whole numbers above 0: 1,2,4")
    return tuple(sorted(set(map(int, numbers))))


def _require_draft(methods: Sequence[Method], arguments: Mapping[str, Any]) -> None:
    """Refuse a main model without a draft for methods that need one, in the words of `bench`."""
    names = [method.name for method in methods if method.drafter in WITH_DRAFT]
    if names and arguments["main"] is not None and arguments["draft"] is None:
        check_place(arguments["main"])
        raise OptionError(
            "no draft model for ",
            Option("main", arguments["main"]),
            f": give --draft, or --methods without {', '.join(names)}",
        )


def _measure(ways: Mapping[str, Way], schedule: Schedule) -> tuple[list[Run], str | None]:
    """The runs, and what ended them early: Ctrl-C, or the error of a generation."""
    runs: list[Run] = []
    try:
        with progress("Measuring", len(ways) * schedule.num_turns) as step:
            for run in run_interleaved(ways, schedule, step):
                runs.append(run)  # noqa: PERF402 - they are to outlast an error
    except (KeyboardInterrupt, SpecdecError) as error:
        if not runs:
            raise
        return runs, str(error) or CTRL_C
    return runs, None


def _plot(file: Path, rows: Sequence[Row]) -> str:
    """Draw the plot; returns what to say of it."""
    try:
        plot_ratios(file, rows)
    except ImportError:
        return f"; no plot without matplotlib: {install('bench')}"
    return f" and {file}"


@contextmanager
def progress(title: str, num_steps: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr; what it yields moves it on, and says what happens now."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=num_steps)

        def step(now: str) -> None:
            bar.update(task, advance=1, description=f"{title}: {now}")

        yield step
