"""From figures to what is printed: medians with their spread, and rows of Markdown tables."""

from collections.abc import Sequence
from statistics import quantiles

import click

from tests.benchmarks.peers.concurrency import Interval


def interval(ratios: Sequence[float]) -> str:
    """The median of paired ratios, and its bootstrap interval of 95 %."""
    found = Interval.of(ratios)
    return f"{found.median:.3f} ({found.low:.3f} to {found.high:.3f}), {len(ratios)} pairs"


def quartiles(values: Sequence[float], form: str = ".2f") -> str:
    """The median, and the quartiles beside it."""
    low, middle, high = (format(value, form) for value in quantiles(values, n=4))
    return f"{middle} ({low} to {high})"


def head(*titles: str) -> None:
    """Print the head of a table."""
    row(*titles)
    click.echo("|---" * len(titles) + "|")


def row(*cells: object) -> None:
    """Print a row of a table."""
    click.echo(f"| {' | '.join(map(str, cells))} |")
