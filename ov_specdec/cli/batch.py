"""`ov-specdec batch`: answer a file of requests into a file of results."""

import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import click
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from ov_specdec.batch_file import Results, Serving, Tally, answer_lines, find_changed
from ov_specdec.cli.declare import options_of, own_options, take
from ov_specdec.cli.messages import end_interrupted
from ov_specdec.cli.models import CONCURRENT, PIPELINE, make_pipeline, model_name
from ov_specdec.cli.terminal import progress, with_errors
from ov_specdec.description import About, describe
from ov_specdec.errors import OptionError
from ov_specdec.openai.body import Rules, UnknownNames
from ov_specdec.server.settings import Settings

FAILED = 1
"""Exit code if requests failed."""

DECISIVE = (
    *("main", "device", "precision", "properties", "kv"),
    *("max_model_len", "batch_invariant", "generation_config"),
)
"""Loading options that affect the answers; the others only affect speed."""


@click.command()
@with_errors
@click.argument("requests", type=click.Path(path_type=Path))
@own_options
@options_of(describe(Settings), "strict_fields")
@options_of(PIPELINE, *CONCURRENT)
def batch(
    requests: Path,
    *,
    output: Annotated[
        Path, About("Append results to this file, and skip requests that it already answers.")
    ],
    overwrite: Annotated[
        bool, About("Replace results whose request body, model or options have changed.")
    ] = False,
    served_model_name: Annotated[
        str | None, About("Name of the model.", unset="its folder's name", metavar="NAME")
    ] = None,
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
    num_lines = _count_lines(requests)
    if output.exists() and output.samefile(requests):
        raise OptionError(f"--output '{output}' is the file of requests: give another file")
    name = served_model_name or model_name(pipeline["main"])
    decisive = {each: pipeline[each] for each in DECISIVE}
    settings = {"model": name, "strict_fields": strict_fields, **decisive}
    with Results(output) as results:
        _check_changes(requests, results, settings, overwrite)
        with make_pipeline(pipeline) as models:
            temperature = None if pipeline["generation_config"] == "model" else 1.0
            rules = Rules(temperature, UnknownNames(refuse=strict_fields))
            serving = Serving(models, name, pipeline["max_batch_size"], rules, settings)
            tally = _answer(requests, num_lines, results, serving)
    if tally.failed or tally.failed_before:
        sys.exit(FAILED)


def _check_changes(
    requests: Path, results: Results, settings: Mapping[str, Any], overwrite: bool
) -> None:
    """Refuse requests whose result belongs to other content or settings, or remove the result."""
    with requests.open("rb") as lines:
        changed = list(find_changed(lines, results, settings))
    if changed and not overwrite:
        number, custom_id = changed[0]
        raise OptionError(
            f"line {number} of REQUESTS '{requests}', custom_id='{custom_id}', was answered with "
            "another body, model or options: give another --output, or --overwrite to answer it "
            "again"
        )
    if changed:
        results.remove({custom_id for _, custom_id in changed})


def _answer(requests: Path, num_lines: int, results: Results, serving: Serving) -> Tally:
    start, tally = perf_counter(), Tally()
    failed = TextColumn("{task.fields[failed]}")
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), failed)
    try:
        with (
            progress("Requests", num_lines, *columns, failed="") as update,
            requests.open("rb") as lines,
        ):

            def step(tally: Tally) -> None:
                done = tally.answered + tally.failed + tally.skipped
                update(completed=done, failed=f"{tally.failed} failed" if tally.failed else "")

            answer_lines(lines, results, serving, tally, step)
    except KeyboardInterrupt:
        end_interrupted(f"interrupted: {_describe(tally)}")
    seconds = perf_counter() - start
    speed = f", {tally.tokens} tokens in {seconds:.1f} s ({tally.tokens / seconds:.1f} tokens/s)"
    if tally.first_failure:
        click.echo(f"first error: {tally.first_failure}", err=True)
    click.echo(f"{_describe(tally)}{speed if tally.tokens else ''}", err=True)
    return tally


def _describe(tally: Tally) -> str:
    errors = f", {tally.failed_before} of them with an error" if tally.failed_before else ""
    return (
        f"{tally.answered} answered, {tally.failed} failed, {tally.skipped} answered before{errors}"
    )


def _count_lines(file: Path) -> int:
    """The number of non-empty lines."""
    try:
        with file.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    except OSError as error:
        raise OptionError(f"REQUESTS '{file}' cannot be read ({error.strerror})") from error
