"""`python -m lab.benchmarks compare-figures OLD NEW`: what has become faster or slower."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import click

from lab.benchmarks.figures.results import by_prompt, cells, scatter
from lab.benchmarks.options import PATH
from lab.benchmarks.record import Record, Row, select
from lab.benchmarks.tables import LEAST, in_quartiles, markdown, quartiles_of
from ov_specdec.cli.terminal import with_errors

FIELDS = {
    **dict.fromkeys(("speed", "later speed"), "higher"),
    **dict.fromkeys(("first", "later first", "kept", "fresh", "own", "mapped"), "lower"),
    **dict.fromkeys(("1 of one", "2 of one", "5 of one", "9 of one", "1 of 8"), "lower"),
}
"""Figures that are compared, and which is better."""

PEER = "genai"
"""Beginning of methods that no commit of this project changes: they show the machine."""

ALIKE = ("options", "machine", "models")
"""What two files must have in common for their figures to be compared."""


@click.command("compare-figures")
@with_errors
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
def compare_figures(old: Path, new: Path) -> None:
    """Compare two files of figures, OLD and NEW, cell by cell.

    The exit code is 1 if a cell is slower. A ratio is that of a method on the same prompt, better
    if it is above 1. Scatter is that of plain decoding, the larger one of both files, and at least
    2 %. A cell is slower if three of four prompts fall below 1 by more than that.
    """
    before, after = (Record.read(file) for file in (old, new))
    after.require_same(before, new, ALIKE, "compare files of one machine and the same models")
    head = ("cell", "method", "figure", "n", "old", "new", "ratio", "scatter", "")
    lines = list(compared(before.rows, after.rows))
    click.echo(markdown([head, *lines]))
    slower = sum(line[-1] == SLOWER for line in lines)
    click.echo(f"\n{len(lines)} cells, {slower} slower")
    if slower:
        click.get_current_context().exit(1)


SLOWER = "slower"
LEAST_SCATTER = 0.02
"""Of any figure: memory has no plain decoding to tell it by."""


def compared(old: Sequence[Row], new: Sequence[Row]) -> Iterator[Sequence[str]]:
    """A line for each figure of each method that both have."""
    before, after = cells(old), cells(new)
    for key in (key for key in before if key in after):
        groups = before[key], after[key]
        noise = max((median(s) for group in groups if (s := scatter(group))), default=None)
        name = ", ".join(str(value) for value in key if value is not None)
        for method in dict.fromkeys(row.get("method") for row in before[key]):
            one, other = (select(group, method=method) for group in groups)
            for field, better in FIELDS.items():
                found = [by_prompt(rows, field) for rows in (one, other)]
                if ratios := paired(found[0], found[1], better):
                    own = not str(method).startswith(PEER)
                    middles = (f"{median(values.values()):.4g}" for values in found)
                    yield [
                        *(name, str(method or ""), field, str(len(ratios)), *middles),
                        *(in_quartiles(ratios), "" if noise is None else f"{noise:.1%}"),
                        SLOWER if own and is_slower(ratios, noise) else "",
                    ]


def paired(old: Mapping[object, float], new: Mapping[object, float], better: str) -> list[float]:
    """Ratios of the prompts that both have, above 1 where the new figure is better."""
    pairs = [(old[key], new[key]) for key in old if new.get(key) and old[key]]
    return [b / a if better == "higher" else a / b for a, b in pairs]


def is_slower(ratios: Sequence[float], noise: float | None) -> bool:
    """Whether ratios fall below 1 by more than the scatter, three of four of them at least."""
    upper = quartiles_of(ratios)[2] if len(ratios) >= LEAST else max(ratios)
    return upper < 1 - max(noise or 0.0, LEAST_SCATTER)
