"""`ov-specdec batch`: answer a file of requests into a file of results."""

import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.progress import MofNCompleteColumn, Progress

from ov_specdec.cli.app import end_interrupted
from ov_specdec.cli.batch_file import BatchRun, Results
from ov_specdec.cli.declare import command, options_of, take
from ov_specdec.cli.models import PIPELINE, make_pipeline, model_name
from ov_specdec.cli.terminal import progress
from ov_specdec.errors import OptionError
from ov_specdec.openai.body import UnknownFields
from ov_specdec.options.model import option
from ov_specdec.server.settings import Settings


@command(
    "[MAIN] REQUESTS", options_of(Settings.model_fields, "strict_fields"), options_of(PIPELINE)
)
def batch(
    *,
    arguments: tuple[str, ...],
    output: Path = option(
        ..., "Append results to this file, and skip requests that it already answers."
    ),
    served_model_name: str | None = option(
        None, "Name of the model.", unset="its folder's name", metavar="NAME"
    ),
    strict_fields: bool,
    **options: Any,
) -> None:
    """Answer the requests in REQUESTS, a file in OpenAI's batch format.

    Each line is {"custom_id", "method": "POST", "url", "body"}, with /v1/completions or
    /v1/chat/completions as url. Results come in any order, with the custom_id of their request. The
    result of a failed request is its error, and the exit code is 1. After an interruption, the same
    command resumes.
    """
    pipeline = take(options, PIPELINE)
    requests, *others = map(Path, arguments)
    if others:
        raise OptionError(f"REQUESTS are {len(arguments)} files: give one")
    with requests.open("rb") as file:
        num_lines = sum(1 for line in file if line.strip())
    if output.exists() and output.samefile(requests):
        raise OptionError(f"--output '{output}' is the file of requests: give another file")
    name = served_model_name or model_name(pipeline["main"])
    results = Results(output)
    with make_pipeline(pipeline) as models:
        run = BatchRun(models, name, pipeline["max_batch_size"], UnknownFields(strict_fields))
        _answer(requests, num_lines, results, run)
    if results.failed or results.failed_before:
        sys.exit(1)


def _answer(requests: Path, num_lines: int, results: Results, run: BatchRun) -> None:
    start = perf_counter()
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    try:
        with progress("Requests", num_lines, *columns) as update, requests.open("rb") as lines:
            for _ in run.answer(lines, results):
                update(completed=results.answered + results.failed + results.skipped)
    except KeyboardInterrupt:
        end_interrupted(f"interrupted: {results}")
    seconds, tokens = perf_counter() - start, results.tokens
    speed = f", {tokens} tokens in {seconds:.1f} s ({tokens / seconds:.1f} tokens/s)"
    if results.first_failure:
        click.echo(f"first error: {results.first_failure}", err=True)
    click.echo(f"{results}{speed if tokens else ''}", err=True)
