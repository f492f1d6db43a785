"""Markdown tables, and the figures in their cells."""

from collections.abc import Iterable, Sequence
from statistics import median, quantiles

from lab.benchmarks.record import Row


def markdown(lines: Iterable[Sequence[str]], under: str = "---") -> str:
    """A table, whose first line is its head. under: what stands below all but its first column."""
    head, *others = lines
    parts = [head, ["---", *[under] * (len(head) - 1)], *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in parts)


def numbers(rows: Sequence[Row], name: str) -> list[float]:
    """The values of a field, where rows have it."""
    return [row[name] for row in rows if row.get(name) is not None]


LEAST = 6
"""Fewest values that quartiles are shown of."""


def in_quartiles(values: Sequence[float], form: str = ".2f") -> str:
    """The median, with the quartiles beside it where there are enough values."""
    if len(values) < LEAST:
        return format(median(values), form)
    low, middle, high = (format(value, form) for value in quartiles_of(values))
    return f"{middle} ({low} to {high})"


def quartiles_of(values: Sequence[float]) -> list[float]:
    """First quartile, median and third quartile, none of them beyond the values."""
    return quantiles(values, n=4, method="inclusive")
