"""From the rows of a record to Markdown tables, and the figures in their cells."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import mean, median, quantiles
from typing import Any

from tests.benchmarks.record import Record, Row, select

Cell = Callable[[Sequence[Row]], str]
"""What a cell shows of the rows that it stands for; there is at least one."""

RESAMPLES = 2000


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
    values = dict.fromkeys(row[name] for row in rows)
    return {str(value): only(cell, **{name: value}) for value in values}


def only(cell: Cell, **values: Any) -> Cell:
    """A cell of the rows with these values; empty without any."""

    def shown(rows: Sequence[Row]) -> str:
        chosen = select(rows, **values)
        return cell(chosen) if chosen else ""

    return shown


def numbers(rows: Sequence[Row], name: str) -> list[float]:
    """The values of a field, where rows have it."""
    return [row[name] for row in rows if row.get(name) is not None]


def value(name: str, form: str = "") -> Cell:
    """The value of a field in the last row."""
    return lambda rows: format(rows[-1][name], form) if rows[-1].get(name) is not None else ""


def figure(of: Callable[[Sequence[float], str], str]) -> Callable[..., Cell]:
    """A kind of cell: a figure of all values of a field, in a form, each `times` a number."""

    def cell(name: str, form: str = ".2f", times: float = 1) -> Cell:
        def shown(rows: Sequence[Row]) -> str:
            values = [times * value for value in numbers(rows, name)]
            return of(values, form) if values else ""

        return shown

    return cell


def in_quartiles(values: Sequence[float], form: str = ".2f") -> str:
    """The median, and the quartiles beside it."""
    found = quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    low, middle, high = (format(value, form) for value in found)
    return f"{middle} ({low} to {high})"


def ratios(rows: Sequence[Row], one: str, other: str, name: str) -> list[float]:
    """A figure of one method by that of another, of each turn that both had."""
    values = [{row["turn"]: row[name] for row in select(rows, method=m)} for m in (one, other)]
    return [own / values[1][turn] for turn, own in values[0].items() if turn in values[1]]


def to_best(
    rows: Sequence[Row], method: str, others: Sequence[str]
) -> tuple[list[float], list[str]]:
    """The speed of a method over that of the best of others, turn by turn; and the best ones.

    The best is chosen on one half of the turns and measured on the other, so that luck does not
    choose it.
    """
    turns = sorted({row["turn"] for row in rows})
    found, chosen = list[float](), list[str]()
    for half in range(2 if others and len(turns) > 1 else 0):
        choosing, measured = (
            [row for row in rows if row["turn"] in part]
            for part in (turns[half::2], turns[1 - half :: 2])
        )
        speeds = {name: numbers(select(choosing, method=name), "speed") for name in others}
        chosen.append(max(others, key=lambda name: median(speeds[name] or [0.0])))
        found += ratios(measured, method, chosen[-1], "speed")
    return found, list(dict.fromkeys(chosen))


@dataclass(frozen=True)
class Interval:
    """A median, and the 95 % interval that the bootstrap's percentiles give it (Efron 1979)."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval | None":
        """The interval of `values`, the same at each call; None where there are none."""
        if not values:
            return None
        generator = random.Random(0)
        medians = sorted(median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
        return cls(median(values), medians[RESAMPLES // 40], medians[-1 - RESAMPLES // 40])


def interval(values: Sequence[float]) -> str:
    """The median of paired ratios and its interval; empty without any."""
    found = Interval.of(values)
    if found is None:
        return ""
    return f"{found.median:.3f} ({found.low:.3f} to {found.high:.3f}), {len(values)} pairs"


quartiles = figure(in_quartiles)
average = figure(lambda values, form: format(mean(values), form))
middle = figure(lambda values, form: format(median(values), form))
extremes = figure(lambda values, form: f"{min(values):{form}} to {max(values):{form}}")
