"""`ov-specdec bench`: measure decoding methods of one pair in interleaved runs."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from pydantic import Field
from rich.console import Console

from ov_specdec.cli.app import say
from ov_specdec.cli.declare import command, options_of, take
from ov_specdec.cli.options import FOR_SEVERAL, MEASURED_TOKENS, PIPELINE
from ov_specdec.cli.terminal import console, progress
from ov_specdec.errors import OptionError, SpecdecError
from ov_specdec.files import replacing
from ov_specdec.measure.methods import (
    ALIKE,
    BASELINE,
    Answer,
    Turn,
    find_method,
    interleave,
    make_table,
    open_methods,
    summarize,
)
from ov_specdec.measure.prompts import PROMPT_SETS, read_prompts
from ov_specdec.models.devices import describe_machine
from ov_specdec.options.model import Options, option

DEFAULT_METHODS = "plain,adaptive,constant-2,constant-4,constant-8,suffix,prompt-lookup,both"
QUICK = {"methods": "plain,adaptive,constant-4", "rounds": 1, "max_new_tokens": 32}
"""Defaults of other options with --quick."""


def _take_quick(context: click.Context, _: click.Parameter, is_quick: bool) -> None:
    if is_quick:
        context.default_map = QUICK


UNMEASURED = ("drafter", "generation_config", "tool_call_parser", "reasoning_parser")
"""Arguments of a pipeline that this command chooses, or that change no figure."""


class BenchOptions(Options):
    """Options of `bench`, besides those of pipelines."""

    methods: str = option(
        DEFAULT_METHODS,
        "Methods to measure; constant-N drafts N tokens in each round, and plain always runs.",
        metavar="M,M,...",
    )
    prompt_set: Literal["code", "quoting"] | None = option(
        None,
        "Prompts to continue; the output for quoting repeats the prompt.",
        unset="code",
        flag="prompts",
    )
    prompt_file: Path | None = option(
        None, 'Read prompts from a file: one per line, or objects with "prompt" in a .jsonl file.'
    )
    concurrency: Sequence[Annotated[int, Field(ge=1)]] = option(
        (1,), "Numbers of concurrent requests.", metavar="N,N,..."
    )
    rounds: int = option(5, "Runs of each prompt.", ge=1)
    max_new_tokens: int = option(MEASURED_TOKENS, "Output tokens of a request.", ge=1)
    output: Path | None = option(None, "Write all results to a file as JSON.", unset="no file")


@command(
    "[MAIN] [DRAFT]",
    click.option(
        "--quick",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_take_quick,
        help="Measure fewer methods, rounds and tokens, as a trial.",
    ),
    options_of(PIPELINE, without=(*FOR_SEVERAL, *UNMEASURED)),
    options_of(BenchOptions.model_fields),
)
def bench(**options: Any) -> None:
    """Measure the speed of plain and speculative decoding, in interleaved runs.

    The table goes to stdout. docs/benchmarking.md explains its methods and columns.
    """
    given = take(options, PIPELINE)
    asked = BenchOptions(**options)
    selected = {name: find_method(name) for name in (BASELINE, *asked.methods.split(","))}
    prompts = _find_prompts(asked.prompt_set, asked.prompt_file)
    loads = [make_loads(prompts, size) * asked.rounds for size in sorted({*asked.concurrency})]
    given["max_batch_size"] = max(asked.concurrency)
    generation = {"max_new_tokens": asked.max_new_tokens, **ALIKE}
    # The file comes first, to fail early if it cannot be written.
    with nullcontext() if asked.output is None else replacing(asked.output) as file:
        with console.status("Loading models and timing their passes"):
            answers = open_methods(selected, given, generation)
        turns, error = _measure(answers, loads)
        settings = {"prompts": prompts, "rounds": asked.rounds, **generation, **given}
        report = _as_dict(turns, settings, error)
        if file is not None:
            file.write_text(json.dumps(report, default=str), encoding="utf-8")
    # 160 columns have room for the table.
    Console(width=None if sys.stdout.isatty() else 160).print(make_table(summarize(turns)))
    partial = "" if error is None else "; partial, since it ended early"
    click.echo(f"medians (quartiles), {report['machine']}{partial}")
    if error is not None:
        raise error


def _measure(
    answers: Mapping[str, Answer], loads: Sequence[Sequence[Sequence[str]]]
) -> tuple[list[Turn], BaseException | None]:
    """All turns, or those before an error or Ctrl-C, and that; raises it if there are none."""
    turns: list[Turn] = []
    num_turns = sum(map(len, loads))
    with progress("Measuring", len(answers) * (len(loads) + num_turns)) as update:
        step = lambda name: update(advance=1, description=f"Measuring {name}")  # noqa: E731
        try:
            seconds = 0.0
            for own in loads:
                [first] = interleave(answers, own[:1], step)
                slowest = (max(each.seconds for each in run) for run in first.values())
                seconds += len(own) * sum(slowest)
            say(f"{len(answers) * num_turns} runs take about {seconds:.0f} s")
            for own in loads:
                for turn in interleave(answers, own, step):
                    turns.append(turn)  # noqa: PERF402 - an error must not lose those before
        except (KeyboardInterrupt, SpecdecError) as error:
            if not turns:
                raise
            return turns, error
    return turns, None


def _as_dict(
    turns: Sequence[Turn], settings: Mapping[str, Any], error: BaseException | None
) -> dict[str, Any]:
    """All results for JSON."""
    return {
        "version": version("ov-specdec"),
        "machine": describe_machine(settings["device"]),
        "ended_by": error and repr(error),
        "settings": settings,
        "table": [asdict(row) for row in summarize(turns)],
        "turns": [
            {
                "concurrency": len(turn[BASELINE]),
                "answers": {name: [*map(asdict, own)] for name, own in turn.items()},
            }
            for turn in turns
        ],
    }


def make_loads(prompts: Sequence[str], size: int) -> list[list[str]]:
    """The requests that arrive together: as many of this size as the prompts fill, at least one."""
    starts = range(0, max(len(prompts) - size, 0) + 1, size)
    return [list(islice(cycle(prompts), start, start + size)) for start in starts]


def _find_prompts(prompt_set: str | None, file: Path | None) -> tuple[str, ...]:
    if prompt_set is not None and file is not None:
        raise OptionError(f"give --prompts '{prompt_set}' or --prompt-file '{file}', not both")
    return PROMPT_SETS[prompt_set or "code"] if file is None else read_prompts(file)
