"""`python -m tests.benchmarks table`: the tables of records that were kept."""

from pathlib import Path

import click

from ov_specdec.cli.terminal import with_errors
from tests.benchmarks.options import PATH
from tests.benchmarks.record import Record
from tests.benchmarks.tables import show


@click.command()
@with_errors
@click.argument("records", type=PATH, nargs=-1, required=True)
def table(records: tuple[Path, ...]) -> None:
    """Print the tables of RECORDS, which other commands wrote."""
    click.echo("\n\n".join(show(Record.read(file)) for file in records))
