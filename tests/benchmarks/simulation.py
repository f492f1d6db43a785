"""The planner against constant lengths on simulated machines; the tests try some of them."""

from collections.abc import Iterator, Sequence
from functools import partial

import click

from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import several
from tests.benchmarks.record import Row
from tests.benchmarks.simulated import sequences as shared
from tests.benchmarks.simulated import texts
from tests.benchmarks.simulated.machine import CURVES
from tests.benchmarks.tables import across, table


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """The speed over that of the best constant length, and that length."""

    def cell(own: Sequence[Row]) -> str:
        return f"{own[0]['to best']:.3f} @{own[0]['best']}"

    for by in (["curve", "change"], ["curve", "sequences"]):
        if chosen := [row for row in rows if by[1] in row]:
            yield table(chosen, by, across(chosen, "accepted", cell))


@click.command()
@several("--curves", str, tuple(CURVES), says="What passes cost.", among=CURVES)
@several("--changes", float, texts.CHANGES, says="Plain passes for another size, one sequence.")
@several("--sequences", int, shared.CONCURRENCIES, says="That share passes.")
@click.option("--seeds", default=5, show_default=True, help="Of which the median is taken.")
@measures
def simulation(
    curves: tuple[str, ...],
    changes: tuple[float, ...],
    sequences: tuple[int, ...],
    seeds: int,
) -> Measurements:
    """Compare the planner with the best constant length on simulated machines."""
    for curve in curves:
        for change in changes:
            for label in texts.TEXTS:
                key = {"curve": curve, "change": change, "accepted": label}
                yield key, partial(texts.compare, curve, change, label, seeds)
        for number in sequences if curve in shared.CURVES else ():
            for label in shared.MIXTURES:
                key = {"curve": curve, "sequences": number, "accepted": label}
                yield key, partial(shared.compare, curve, label, number, seeds)
