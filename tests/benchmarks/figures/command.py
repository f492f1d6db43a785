"""`python -m tests.benchmarks figures`: what the pages state, into docs/figures."""

import re
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import click

from ov_specdec.cli.terminal import with_errors
from ov_specdec.errors import SpecdecError
from ov_specdec.loading.locate import locate
from tests.benchmarks.figures.given import Given
from tests.benchmarks.figures.parts import PARTS
from tests.benchmarks.figures.results import FOLDER, widest
from tests.benchmarks.measuring import Measurements, measure_into
from tests.benchmarks.options import PATH, property_option, several
from tests.benchmarks.record import Record


@click.command()
@with_errors
@click.option("--minutes", default=50.0, show_default=True, help="Of all parts together, at most.")
@several("--only", str, tuple(PARTS), says="Parts.", among=PARTS)
@click.option("--chat", metavar="DIR", help="A chat model, such as SmolLM2-135M-Instruct.")
@click.option("--gguf", type=PATH, help="The chat model for llama.cpp.")
@click.option("--expanded", metavar="DIR", help="What `expand` made of the embedded main.")
@click.option("--speech", metavar="DIR", help="A Whisper.")
@click.option("--recording", "recordings", type=PATH, multiple=True, help="English, for --speech.")
@property_option
@click.option("--output", type=PATH, help="[docs/figures/PROCESSOR.json]")
def figures(
    minutes: float,
    only: tuple[str, ...],
    chat: str | None,
    gguf: Path | None,
    expanded: str | None,
    speech: str | None,
    recordings: tuple[Path, ...],
    properties: dict[str, str],
    output: Path | None,
) -> None:
    """Measure what the pages state into one file for each processor.

    A file is gone on with on the same processor, with the same commit, models and versions only.
    With the environment variable ONEDNN_MAX_CPU_ISA=AVX2 the processor counts as another one. On a
    processor with bf16 it takes --property INFERENCE_PRECISION_HINT=f32 too, as AVX2 has by
    default, and --property DYNAMIC_QUANTIZATION_GROUP_SIZE=0: OpenVINO has no kernel for the rest.
    """
    folders = {"expanded": expanded, "chat": chat, "speech": speech}
    paths = {role: locate(name) for role, name in folders.items() if name}
    with TemporaryDirectory() as scratch:
        given = Given(
            **paths, gguf=gguf, recordings=recordings, scratch=scratch, properties=properties
        )
        options = {"properties": properties} if properties else {}
        record = Record.begin("figures", options, given.folders)
        file = output or FOLDER / f"{processor(record)}.json"
        record = resumed(record, file)
        failed = measure_parts(record, given, only, minutes, file)
    click.echo(file)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}; the reasons are above")


def resumed(record: Record, file: Path) -> Record:
    """The record in a file, to go on with, or this one where there is none.

    Not all models have to be given each time: those that only one of the two knows are in both.
    """
    if not file.exists():
        return record
    kept = Record.read(file, "figures")
    kept.models, record.models = (
        {**record.models, **kept.models},
        {**kept.models, **record.models},
    )
    record.require_same(kept, file)
    return kept


def measure_parts(
    record: Record, given: Given, only: tuple[str, ...], minutes: float, file: Path
) -> list[str]:
    """Measure parts, each within its share of the time; those that failed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    chosen = {name: part for name, part in PARTS.items() if name in only and given.has(part.needs)}
    for name in only:
        if name not in chosen:
            click.echo(f"{name}: left out, for --{PARTS[name].needs} is not given", err=True)
    end, failed = monotonic() + 60 * minutes, list[str]()
    to_come = sum(part.minutes for part in chosen.values())
    for name, part in chosen.items():
        share = (end - monotonic()) * part.minutes / to_come
        to_come -= part.minutes
        if share <= 0:
            click.echo(f"{name}: left out, for the time is up", err=True)
            continue
        try:
            with closing(part.measure(given)) as measurements:
                measure_into(record, named(name, measurements), partial(record.write, file), share)
        except SpecdecError as error:
            click.echo(f"{name}: {error}", err=True)
            failed.append(name)
    return failed


def named(part: str, measurements: Measurements) -> Measurements:
    """The measurements of a part, as rows of the file that has all of them."""
    with closing(measurements):
        for key, measure in measurements:
            yield {"part": part, **key}, measure


def processor(record: Record) -> str:
    """A file's name for a processor: its own, and the most that its instructions come to."""
    machine = record.machine
    limit = machine["ONEDNN_MAX_CPU_ISA"]
    level = f"limited to {limit}" if limit else widest(machine["instructions"] or [])
    return re.sub(r"[^a-z0-9]+", "-", f"{machine['name']} {level}".lower()).strip("-")
