"""What all commands that measure have in common: they record, go on, and show tables."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial, wraps
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import click

from ov_specdec.cli.terminal import with_errors
from tests.benchmarks.options import PATH, Command, Models
from tests.benchmarks.record import Key, Record, Row
from tests.benchmarks.tables import show
from tests.benchmarks.texts import Prompts

Measurement = tuple[Key, Callable[[], Row]]
"""The fields that a row is known by, and a function that measures the others."""

Measurements = Generator[Measurement, None, None]


def measures(function: Callable[..., Measurements]) -> Command:
    """Make a command of a function that yields measurements, and that is named as the command is.

    Each becomes a row of the record, unless that has it already. Those of one turn, which are
    compared with each other, are kept together or not at all. The function's `models` and `prompts`
    are recorded by their hashes, its other arguments as they are.
    """

    @click.option("--output", type=PATH, help="Record to write, or to go on with.")
    @with_errors
    @wraps(function)
    def command(output: Path | None, **given: Any) -> None:
        record = begin(function.__name__.replace("_", "-"), given)
        if output is not None:
            record = record.resumed(output)
        with closing(function(**given)) as measurements:
            measure_into(record, measurements, partial(write, record, output))
        click.echo(show(record))

    return command


def write(record: Record, output: Path | None) -> None:
    """Write a record that has rows, where there is a file for it."""
    if output is not None and record.rows:
        record.write(output)


def measure_into(
    record: Record,
    measurements: Iterable[Measurement],
    write: Callable[[], None],
    seconds: float = 0.0,
) -> None:
    """Measure what the record lacks, and write it after each turn, or each row that has none.

    seconds: to end after, from the first measurement; 0 for all of them.
    """
    start = turn = None
    for key, measure in measurements:
        if record.has(key):
            continue
        start = start or monotonic()  # models are loaded by now
        if turn is None or key.get("turn") != turn:
            write()
            if 0 < seconds <= monotonic() - start:
                return
        turn = key.get("turn")
        record.rows.append({**key, **measure()})
        known_by = ", ".join(map(str, key.values()))
        click.echo(f"{monotonic() - start:.0f} s: {known_by}", err=True)
    write()


def begin(name: str, given: Mapping[str, Any]) -> Record:
    """A record without rows of a command and its arguments."""
    options: dict[str, Any] = {}
    folders: dict[str, Path] = {}
    for argument, value in given.items():
        if isinstance(value, Models):
            folders |= value.folders
        else:
            options[argument] = _described(value)
    return Record.begin(name, options, folders)


def _described(value: Any) -> Any:
    """A value for JSON; what is in a file by its hash."""
    if isinstance(value, Prompts):
        return value.described()
    if isinstance(value, Path):
        return {"name": value.name, "digest": sha256(value.read_bytes()).hexdigest()}
    return list(value) if isinstance(value, tuple) else value


def in_turns(names: Sequence[str], turn: int) -> list[str]:
    """The names in the order of a turn, each of which begins with another one."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]
