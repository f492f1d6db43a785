"""`python -m tests.benchmarks charts`: what docs/figures has, as charts in docs/images."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import click

from ov_specdec.cli.terminal import with_errors
from tests.benchmarks.drawing import IMAGES, INK, finish, new_figure, save_svg
from tests.benchmarks.figures.results import FOLDER, Results, best, methods, speedups
from tests.benchmarks.labels import colour, label
from tests.benchmarks.options import PATH
from tests.benchmarks.record import Row, select
from tests.benchmarks.tables import numbers

SPEEDUP = "speedup over plain decoding (median, quartiles)"


@click.command()
@with_errors
@click.option("--figures", "folder", type=PATH, default=FOLDER, help="[docs/figures]")
@click.option("--output", type=PATH, default=IMAGES, help="Folder. [docs/images]")
def charts(folder: Path, output: Path) -> None:
    """Draw the charts of docs/images from the files of docs/figures."""
    for results in Results.all(folder):
        for name, draw in CHARTS.items():
            figure = draw(results)
            if figure is not None:
                figure.supxlabel(note(results), fontsize=6.5, x=0.01, ha="left")
                file = output / f"{name}-{results.name}.svg"
                save_svg(figure, file, results.stamp)
                click.echo(file)


def note(results: Results) -> str:
    """The stamp below a chart, in two lines."""
    return results.stamp.replace("; measured", "\nmeasured")


def speeds(results: Results) -> Any:
    """README's: methods on held-out prompts, pair by pair."""
    groups = {pair: results.rows(pair, prompts="heldout", heat=0.0) for pair in PAIRS}
    groups["tasks"] = results.rows("tasks")
    shown = {pair: fastest(rows) for pair, rows in groups.items() if rows}
    if not shown:
        return None
    figure = new_figure(6.4, 1.4 + 0.26 * sum(map(len, shown.values())))
    rows = figure.subplots(
        len(shown),
        sharex=True,
        squeeze=False,
        height_ratios=[len(names) for names in shown.values()],
    )
    for axes, (pair, names) in zip(rows[:, 0], shown.items(), strict=True):
        bars(axes, groups[pair], names)
        title = "chat, six tasks" if pair == "tasks" else f"{results.model(pair)}, held-out code"
        axes.set_title(f"{title}, greedy, n = {count(groups[pair])}", fontsize=9, loc="left")
    rows[-1, 0].set_xlabel(SPEEDUP, fontsize=9)
    return figure


PAIRS = ("embedded", "expanded")


def fastest(rows: Sequence[Row]) -> list[str]:
    """Plain decoding, what is default, and the best length of each other family."""
    families = ("constant", "genai-draft", "genai-prompt-lookup")
    found = [best(rows, family) for family in families]
    singles = [name for name in methods(rows) if not name.startswith(families)]
    return [*singles, *(name for name in found if name)]


def bars(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    """A bar for each method, with its quartiles."""
    for place, name in enumerate(reversed(names)):
        low, middle, high = quartiles(speedups(rows, name))
        spread = [[middle - low], [high - middle]]
        axes.barh(place, middle, 0.62, color=colour(name), xerr=spread, ecolor=INK, capsize=2)
        axes.text(high, place, f"  {middle:.2f}", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), [label(name) for name in reversed(names)], fontsize=8)
    axes.axvline(1.0, color=INK, linestyle=":", linewidth=1)
    finish(axes)


def by_task(results: Results) -> Any:
    """Drafters on each task of the chat model."""
    rows = results.rows("tasks")
    if not rows:
        return None
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    peer = best(rows, "genai-prompt-lookup")
    names = [name for name in ("suffix", "prompt-lookup", peer) if name]
    figure = new_figure(6.4, 3.4)
    axes, width = figure.subplots(), 0.8 / len(names)
    for number, name in enumerate(names):
        values = [quartiles(speedups(select(rows, task=task), name)) for task in tasks]
        middles = [middle for _, middle, _ in values]
        spread = [[m - low for low, m, _ in values], [high - m for _, m, high in values]]
        places = [place + (number - len(names) / 2 + 0.5) * width for place in range(len(tasks))]
        looks = {"color": colour(name), "yerr": spread, "ecolor": INK, "capsize": 2}
        axes.bar(places, middles, width, label=label(name), **looks)
    axes.axhline(1.0, color=INK, linestyle=":", linewidth=1)
    axes.set_xticks(range(len(tasks)), [task.replace("_", "\n") for task in tasks], fontsize=8)
    axes.set_ylabel(SPEEDUP.replace(" (", "\n("), fontsize=8)
    each = len({row["turn"] for row in rows}) // len(tasks)
    axes.set_title(f"{results.model('chat')}, greedy, n = {each} a task", fontsize=9, loc="left")
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])  # room for the legend
    finish(axes, ncols=len(names), loc="upper center")
    return figure


def by_requests(results: Results) -> Any:
    """Speedup against concurrency, and where it breaks even."""
    parts = {"embedded": "concurrency", "expanded": "concurrency-expanded"}
    shown = {pair: rows for pair, part in parts.items() if (rows := results.rows(part))}
    if not shown:
        return None
    figure = new_figure(3.4 * len(shown) + 0.6, 3.4)
    places = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, (pair, rows) in zip(places, shown.items(), strict=True):
        sizes = sorted({row["requests"] for row in rows})
        for name in (n for n in methods(rows) if n != "plain"):
            looks = {"color": colour(name), "alpha": 0.5 if name[-1] in "46" else 1.0}
            values = [median(speedups(select(rows, requests=n), name)) for n in sizes]
            axes.plot(sizes, values, MARKS.get(name[-1], "o-"), label=label(name), **looks)
        axes.axhline(1.0, color=INK, linestyle=":", linewidth=1)
        axes.text(sizes[-1], 1.0, "break-even", ha="right", va="bottom", fontsize=7)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("requests at a time", fontsize=9)
        axes.set_ylabel("speedup over plain decoding", fontsize=9)
        title = f"{results.model(pair)}, n = {count(select(rows, requests=sizes[-1]))}"
        axes.set_title(title, fontsize=9, loc="left")
        finish(axes, loc="upper right")
    return figure


MARKS = {"2": "s-", "4": "^--", "6": "v:"}
"""How the lines of lengths look that have one colour."""


def by_memory(results: Results) -> Any:
    """Speed against memory, a point for each setting."""
    rows = results.rows("memory", pair="embedded")
    if not rows:
        return None
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    named = dict.fromkeys(row["method"] for row in rows)
    for name in named:
        own = select(rows, method=name)
        memory, fast = numbers(own, "memory"), numbers(own, "speed")
        axes.plot(memory, fast, "o", color=colour(name), label=label(name))
        for row, x, y in zip(own, memory, fast, strict=True):
            shapes = row["shapes"].strip("()").rstrip(",")
            if shapes != "None":
                axes.annotate(f" shapes: {shapes}", (x, y), fontsize=7, va="bottom")
    axes.set_xlim(0, 1.25 * max(numbers(rows, "memory")))
    axes.set_ylim(0, None)
    axes.set_xlabel("MiB that the process holds after ten seconds", fontsize=9)
    axes.set_ylabel("tokens/s (median)", fontsize=9)
    least = min(row["n"] for row in rows)
    axes.set_title(f"{results.model('embedded')}, n >= {least} outputs", fontsize=9, loc="left")
    finish(axes)
    return figure


CHARTS: Mapping[str, Callable[[Results], Any]] = {
    "speed": speeds,
    "tasks": by_task,
    "concurrency": by_requests,
    "memory": by_memory,
}
"""By the beginning of the file's name; None where nothing of it was measured."""


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    low, middle, high = quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return low, middle, high


def count(rows: Sequence[Row]) -> int:
    """How many turns there were."""
    return len({row["turn"] for row in rows})
