"""What parts of the figures have in common: their rows are measured in turns, and kept."""

from collections.abc import Callable, Generator, Iterable, Sequence
from random import Random
from time import monotonic

import click

from lab.benchmarks.record import Key, Record, Row

Measurement = tuple[Key, Callable[[], Row]]
"""The fields that a row is known by, and a function that measures the others."""

Measurements = Generator[Measurement, None, None]


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


def in_turns(names: Sequence[str], turn: object) -> list[str]:
    """The names in the order of a turn: any, so that none has the same one before it each time."""
    return Random(str(turn)).sample(names, len(names))
