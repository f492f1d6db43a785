"""From the rows of a record to Markdown tables, and the figures in their cells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from statistics import mean, median, quantiles
from typing import Any

from tests.benchmarks.record import Record, Row, select

Cell = Callable[[Sequence[Row]], str]
"""What a cell shows of the rows that it stands for; there is at least one."""


def show(record: Record) -> str:
    """All tables of a record, as its command makes them, below what they were measured with."""
    module = import_module(f"tests.benchmarks.{record.command.replace('-', '_')}")
    tables: Iterable[str] = module.tables(record.rows) if record.rows else ()
    return "\n\n".join([record.summary(), *tables])


def table(rows: Sequence[Row], by: Sequence[str], columns: Mapping[str, Cell]) -> str:
    """A Markdown table: a line for all rows that are alike in `by`, its fields, in their order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    lines = [(*by, *columns), ["---"] * (len(by) + len(columns))]
    for values, group in groups.items():
        lines.append((*map(str, values), *(cell(group) for cell in columns.values())))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def across(rows: Sequence[Row], name: str, cell: Cell) -> dict[str, Cell]:
    """A column for each value of a field."""

    def of(value: Any) -> Cell:
        return lambda group: cell(chosen) if (chosen := select(group, **{name: value})) else ""

    return {str(value): of(value) for value in dict.fromkeys(row[name] for row in rows)}


def numbers(rows: Sequence[Row], name: str) -> list[float]:
    """The values of a field, where rows have it."""
    return [row[name] for row in rows if row.get(name) is not None]


def value(name: str, form: str = "") -> Cell:
    """The value of a field in the last row."""
    return lambda rows: format(rows[-1][name], form) if rows[-1].get(name) is not None else ""


def average(name: str, form: str = ".2f") -> Cell:
    """The mean of a field."""
    return lambda rows: format(mean(numbers(rows, name)), form)


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
