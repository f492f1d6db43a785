"""`python -m lab.benchmarks charts`: what docs/figures has, as charts in docs/images."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any

import click
import numpy as np

from lab.benchmarks.figures.results import (
    FOLDER,
    PAIRS,
    SINGLE,
    Results,
    best,
    by_prompt,
    count,
    merged,
    methods,
    plain_of,
    singles,
    speedups,
)
from lab.benchmarks.options import PATH
from lab.benchmarks.peers.methods import label, split
from lab.benchmarks.record import Row, select
from lab.benchmarks.tables import LEAST, numbers, quartiles_of
from ov_specdec.cli.terminal import with_errors
from ov_specdec.results.origins import BLUE, GREEN, GREY, ORANGE

IMAGES = Path(__file__).parents[2] / "docs" / "images"

INK = "#24292f"
"""Text and lines of a chart; in an SVG file they follow the page's colour scheme."""

STYLE = """<style>svg { color: #24292f }
@media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }</style>"""

LARGE = "1b"
"""The pair that is nearest to what people have, of those whose passes are timed."""

DRAFTED = 7
"""Draft tokens of the timeline: passes over one more are timed."""

ROUNDS = 5

COLOURS = (ORANGE, BLUE, GREEN)


@click.command()
@with_errors
@click.option("--figures", "folder", type=PATH, default=FOLDER, help="[docs/figures]")
@click.option("--output", type=PATH, default=IMAGES, help="Folder. [docs/images]")
def charts(folder: Path, output: Path) -> None:
    """Draw the charts of docs/images from the files of docs/figures."""
    from matplotlib.figure import Figure

    every = Results.all(folder)
    for name, (_, has, draw, size) in CHARTS.items():
        file = output / f"{name}.svg"
        file.unlink(missing_ok=True)
        if shown := [each for each in every if has(each)]:
            about = "\n".join(f"{each.name}: {each.stamp}" for each in shown)
            names = merged(singles(each, heat=0.0) for each in shown)
            figure = Figure(figsize=size, dpi=150, layout="constrained")
            panels = figure.subplots(1, len(shown), squeeze=False, sharex=True, sharey=True)[0]
            for axes, results in zip(panels, shown, strict=True):
                axes.set_title(results.name, fontsize=9)
                draw(axes, results, names)
                axes.spines[["top", "right"]].set_visible(False)
                axes.tick_params(labelsize=8)
            figure.legend(
                *panels[0].get_legend_handles_labels(),
                loc="outside upper left",
                ncols=3,
                frameon=False,
                fontsize=8,
            )
            lines = [line for each in about.splitlines() for line in wrap(each, 170)]
            figure.supxlabel("\n".join(lines), fontsize=5.5, x=0.01, ha="left")
            save_svg(figure, file, about)
            click.echo(file)


def save_svg(figure: Any, file: Path, about: str) -> None:
    """Write a figure without a background, whose ink is the page's. about: its description."""
    import matplotlib

    ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    for text in figure.findobj(matplotlib.text.Text):
        text.set_color(INK)
    for axes in figure.axes:
        axes.set_facecolor("none")
        axes.tick_params(colors=INK)
        axes.spines[:].set_color(INK)
    given = {**ink, "svg.fonttype": "none", "svg.hashsalt": "0"}
    with matplotlib.rc_context(given):
        metadata = {"Date": None, "Creator": None, "Description": about}
        figure.savefig(file, transparent=True, metadata=metadata)
    drawn = file.read_text(encoding="utf-8").replace(INK, "currentColor")
    head, start, rest = drawn.partition("<defs>")
    file.write_text(f"{head}{STYLE}\n {start}{rest}", encoding="utf-8")


def speed(axes: Any, results: Results, names: Sequence[str]) -> None:
    """For each pair, of those that any column has, the default and the best of openvino.genai's."""
    shown = singles(results, heat=0.0)
    for place, rows in ((-names.index(name), rows) for name, rows in shown.items()):
        peer, plain = best(rows, "genai") or "", plain_of(rows, results)
        bars = {"default": (0.2, ORANGE), peer: (-0.2, GREY if peer == "genai-plain" else BLUE)}
        for method, (offset, colour) in bars.items():
            own = by_prompt(select(rows, method=method))
            values = [own[prompt] / plain[prompt] for prompt in own if prompt in plain]
            middle = median(values)
            looks = {"color": colour, "ecolor": INK, "capsize": 2}
            if len(values) >= LEAST:
                low, _, high = quartiles_of(values)
                looks["xerr"] = [[middle - low], [high - middle]]
            axes.barh(place + offset, middle, 0.36, **looks)
            axes.text(0.02, place + offset, f"{middle:.2f}", va="center", fontsize=8)
        of_best = f"{median(speedups(rows, 'default', peer)):.2f}" if peer else ""
        at_right = axes.get_yaxis_transform()
        axes.text(1.0, place, of_best, ha="right", va="center", fontsize=8, transform=at_right)
    axes.margins(x=0.2)
    axes.set_yticks([-n for n in range(len(names))], names, fontsize=8)
    axes.axvline(1.0, color=INK, linestyle=":", linewidth=1)
    axes.barh(0, 0, color=ORANGE, label="ov-specdec, default")
    axes.barh(0, 0, color=BLUE, label="openvino.genai, best setting")
    counts = ", ".join(str(count(rows)) for rows in shown.values())
    said = "times openvino.genai's\nplain decoding\nright: default / its best"
    axes.set_xlabel(f"{said}\n(n = {counts})", fontsize=7)


def settings(axes: Any, results: Results, names: Sequence[str]) -> None:
    """All draft lengths and drafters, over plain decoding: what the default is to find."""
    shown = singles(results, heat=0.0)
    for place, rows in ((-names.index(name), rows) for name, rows in shown.items()):
        for name in methods(rows):
            if name != "plain" and (ratios := speedups(rows, name)):
                family, length = split(name)
                above, colour, mark = FAMILIES.get(family, (0.0, GREY, "o"))
                at = (median(ratios), place + above)
                axes.plot(*at, mark, color=colour, markersize=7 if family == "default" else 3.5)
                said, near = str(length or ""), {"textcoords": "offset points", "ha": "center"}
                axes.annotate(said, at, (0, 4), fontsize=6, **near)
    axes.axvline(1.0, color=INK, linestyle=":", linewidth=1)
    axes.set_yticks([-n for n in range(len(names))], names, fontsize=8)
    for family, (_, colour, mark) in FAMILIES.items():
        axes.plot([], [], mark, color=colour, markersize=5, label=label(family))
    axes.set_xlabel("times plain decoding\n(numbers: draft tokens)", fontsize=8)


FAMILIES = {
    "default": (0.0, ORANGE, "D"),
    "constant": (0.2, ORANGE, "o"),
    "suffix": (0.2, GREEN, "s"),
    "model": (0.2, INK, "s"),
    "genai-plain": (-0.2, GREY, "o"),
    "genai-draft": (-0.2, BLUE, "o"),
    "genai-confidence": (-0.2, BLUE, "x"),
    "genai-prompt-lookup": (-0.2, GREEN, "o"),
}
"""Where methods stand beside a pair's place, and how they look."""


def tasks(axes: Any, results: Results, names: Sequence[str]) -> None:
    """The chat model's tasks: default, and openvino.genai plain and with prompt lookup."""
    rows = results.rows("tasks")
    lookup = best(rows, "genai-prompt-lookup") or ""
    found = {name: select(rows, task=name) for name in dict.fromkeys(row["task"] for row in rows)}
    looks = {"default": (0.25, ORANGE), "genai-plain": (0.0, GREY), lookup: (-0.25, BLUE)}
    for place, own in enumerate(reversed(found.values())):
        for method, (above, colour) in looks.items():
            if ratios := speedups(own, method):
                axes.barh(place + above, median(ratios), 0.23, color=colour)
    axes.set_yticks(range(len(found)), [n.replace("_", " ") for n in reversed(found)], fontsize=8)
    axes.axvline(1.0, color=INK, linestyle=":", linewidth=1)
    for method, (_, colour) in looks.items():
        axes.barh(0, 0, color=colour, label=label(method))
    counts = ", ".join(str(count(own)) for own in found.values())
    axes.set_xlabel(f"times plain decoding\n(n = {counts})", fontsize=8)


def temperature(axes: Any, results: Results, names: Sequence[str]) -> None:
    """The default and openvino.genai's settings, greedily and at temperatures."""
    rows = results.rows(SINGLE[LARGE])
    heats = sorted({row["heat"] for row in rows})
    others = (name for name in methods(rows, "genai") if name != "genai-plain")
    for method in ("default", *others):
        own = [speedups(select(rows, heat=heat), method, "genai-plain") for heat in heats]
        is_own = method == "default"
        looks = {"color": ORANGE if is_own else BLUE, "linewidth": 2.5 if is_own else 1.2}
        middles = [median(values) for values in own]
        axes.plot(heats, middles, marker="o", markersize=3, **looks)
        name = "ov-specdec, default" if is_own else label(method).replace(" draft model,", "")
        axes.annotate(
            name,
            (heats[-1], middles[-1]),
            (4, 0),
            textcoords="offset points",
            fontsize=6.5,
            va="top" if is_own else "bottom" if "confidence" in method else "center",
        )
    axes.axhline(1.0, color=INK, linestyle=":", linewidth=1)
    axes.set_xticks(heats)
    axes.set_xlim(heats[0] - 0.05, heats[-1] * 1.7 + 0.1)
    counts = ", ".join(str(count(select(rows, heat=heat))) for heat in heats)
    axes.set_xlabel(f"temperature\n({PAIRS[LARGE]}; n = {counts})", fontsize=8)
    axes.set_ylabel("times openvino.genai's plain decoding", fontsize=8)


def of_passes(results: Results, pair: str = LARGE, cached: int = 200) -> list[Row]:
    """Passes as the default runs them."""
    return results.rows("passes", pair=pair, cached=cached, form="invariant")


def curve(rows: Sequence[Row]) -> Callable[[float], float]:
    """Milliseconds of a pass by its tokens."""
    names = {int(name.split()[0]): name for name in rows[0] if name.endswith(" of one")}
    sizes = sorted(names)
    times = [median(numbers(rows, names[size])) for size in sizes]
    return lambda tokens: float(np.interp(tokens, sizes, times))


def gain(axes: Any, results: Results, names: Sequence[str]) -> None:
    """The speedup of the best draft length, by acceptance and by the draft's cost."""
    time = curve(of_passes(results))
    accepted, costs = np.linspace(0, 0.98, 50), np.geomspace(0.004, 0.6, 50)

    def speedup(rate: float, cost: float) -> float:
        tokens, found = 1.0, 1.0
        for length in range(1, 9):
            tokens += rate**length
            found = max(found, tokens / (time(length + 1) / time(1) + length * cost))
        return found

    values = np.array([[speedup(rate, cost) for rate in accepted] for cost in costs])
    levels = [1.001, 1.25, 1.5, 2, 2.5, 3, 4, 5]
    axes.contourf(accepted, costs, values, levels=levels, cmap="YlOrRd", alpha=0.5, extend="max")
    lines = axes.contour(accepted, costs, values, levels=levels, colors=INK, linewidths=0.6)
    axes.clabel(lines, fmt=lambda level: f"{level:.4g}".replace("1.001", "1"), fontsize=7)
    axes.set_yscale("log")
    axes.set_xlabel("share of draft tokens accepted, each after the others", fontsize=8)
    axes.set_ylabel("pass of the draft / of the main model", fontsize=8)


def lengths(axes: Any, results: Results, names: Sequence[str]) -> None:
    """Tokens per second by draft length and acceptance; a point at the best length."""
    time = curve(of_passes(results))
    _, round_, verify, _ = rounds(results)
    each = max(round_ - verify, 0.0) / DRAFTED
    drafted = range(9)
    for rate, colour in zip((0.9, 0.7, 0.5), COLOURS, strict=True):
        seconds = [(time(length + 1) + length * each) / 1000 for length in drafted]
        speeds = np.power(rate, drafted).cumsum() / seconds
        best = int(speeds.argmax())
        axes.plot(drafted, speeds, color=colour, label=f"each draft token accepted in {rate:.0%}")
        axes.plot(best, speeds[best], marker="o", color=colour)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"draft tokens of each round\n({PAIRS[LARGE]})", fontsize=8)
    axes.set_ylabel("tokens per second", fontsize=8)


def rounds(results: Results) -> tuple[float, float, float, float]:
    """Milliseconds of plain passes, of rounds, of their verification; tokens of a round."""
    rows = results.rows(SINGLE[LARGE], heat=0.0)
    plain, drafts = select(rows, method="plain"), select(rows, method=f"constant-{DRAFTED}")
    each, round_ = (median(1000 * _after_first(row) for row in r) for r in (plain, drafts))
    gained = median((row["tokens"] - 1) / (row["passes"] - 1) for row in drafts)
    return each, round_, curve(of_passes(results))(DRAFTED + 1), gained


def timeline(axes: Any, results: Results, names: Sequence[str]) -> None:
    """Plain decoding above rounds of drafts, to scale, over the same time."""
    each, round_, verify, gained = rounds(results)
    starts = np.arange(ROUNDS + 1) * round_
    ends = np.arange(each, starts[-1] + each / 2, each)
    for end in ends:
        axes.barh(1, each, 0.5, end - each, color=GREY, edgecolor=INK, linewidth=0.8)
    for start in starts[:-1]:
        drafting = max(round_ - verify, 0.0)
        axes.barh(0, drafting, 0.5, start, color=ORANGE, edgecolor=INK, linewidth=0.8)
        axes.barh(0, verify, 0.5, start + drafting, color=BLUE, edgecolor=INK, linewidth=0.8)
    axes.barh(0, 0, color=GREY, label="pass over one token")
    axes.barh(0, 0, color=ORANGE, label=f"{DRAFTED} passes of the draft")
    axes.barh(0, 0, color=BLUE, label=f"pass over {DRAFTED + 1} tokens")
    for place, tokens, end in ((1, ends.size, ends[-1]), (0, ROUNDS * gained, starts[-1])):
        axes.text(end, place, f" {tokens:.0f} tokens", va="center", fontsize=7)
    axes.set_yticks([0, 1], ["with drafts", "plain"], fontsize=8)
    axes.set_xlabel(f"milliseconds\n({PAIRS[LARGE]})", fontsize=8)


def _after_first(row: Row) -> float:
    """Seconds of each pass after the first token."""
    return float((row["tokens"] / row["speed"] - row["first"]) / (row["passes"] - 1))


def context(axes: Any, results: Results, names: Sequence[str]) -> None:
    """Milliseconds of passes over one token of one text and of eight, by what is cached."""
    rows = results.rows("passes", form="invariant")
    lengths = sorted({row["cached"] for row in rows})
    for pair, colour in zip(dict.fromkeys(row["pair"] for row in rows), COLOURS, strict=False):
        for name, style in (("1 of one", "-"), ("1 of 8", "--")):
            own = [of_passes(results, pair, length) for length in lengths]
            times = [median(numbers(each, name)) for each in own]
            said = f"{PAIRS[pair].partition(',')[0]}, {'one text' if style == '-' else '8 texts'}"
            axes.plot(lengths, times, style, color=colour, marker="o", markersize=3, label=said)
    axes.set_yscale("log")
    axes.set_yticks([2, 5, 10, 20, 50, 100], [2, 5, 10, 20, 50, 100], minor=False)
    axes.set_yticks([], minor=True)
    axes.set_xlabel("cached tokens of each text", fontsize=8)
    axes.set_ylabel("ms of a pass", fontsize=8)


def memory(axes: Any, results: Results, names: Sequence[str]) -> None:
    """Own memory of a process, and mapped files, by pair and settings."""
    rows = list(reversed(results.rows("memory")))
    for place, row in enumerate(rows):
        axes.barh(place, row["own"], 0.7, color=ORANGE)
        axes.barh(place, row["mapped"], 0.7, row["own"], color=GREY, alpha=0.5)
        axes.text(row["own"], place, f" {row['own']:.0f}", va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [_process(row) for row in rows], fontsize=7)
    axes.barh(0, 0, color=ORANGE, label="its own")
    axes.barh(0, 0, color=GREY, alpha=0.5, label="mapped files, which the system can take back")
    axes.set_xlabel("MiB", fontsize=8)


def _process(row: Row) -> str:
    """A process in words."""
    shapes = "" if row["shapes"] == "None" else f", static shapes: {row['shapes']}"
    return f"{PAIRS[row['pair']].partition(',')[0]}: {label(split(row['method'])[0])}{shapes}"


def has(part: str) -> Callable[[Results], bool]:
    """Whether a file has rows of a part."""
    return lambda results: bool(results.rows(part))


def has_singles(results: Results) -> bool:
    """Whether a file has single requests."""
    return bool(singles(results, heat=0.0))


def has_rounds(results: Results) -> bool:
    """Whether a file has what `rounds` takes."""
    return bool(of_passes(results) and results.rows(SINGLE[LARGE]))


Draw = Callable[[Any, Results, Sequence[str]], None]
"""Draws into axes; the last argument are the names of single requests, of all columns."""

CHARTS: Mapping[str, tuple[str, Callable[[Results], bool], Draw, tuple[float, float]]] = {
    "speed": (
        "Speed over openvino.genai's plain decoding, greedy; median and quartiles",
        has_singles,
        speed,
        (8.2, 5.6),
    ),
    "settings": (
        "Speed of all settings that were tried, over plain decoding, greedy",
        has_singles,
        settings,
        (8.2, 6.2),
    ),
    "tasks": (
        "Speed of SmolLM2-135M over plain decoding, by task",
        has("tasks"),
        tasks,
        (8.2, 3.2),
    ),
    "temperature": (
        "Speed over temperature, beside the settings of openvino.genai",
        has(SINGLE[LARGE]),
        temperature,
        (8.2, 3.4),
    ),
    "map": (
        "Speedup by acceptance and by the draft's cost, from measured passes of the 1 B model",
        has_rounds,
        gain,
        (8.2, 3.6),
    ),
    "lengths": (
        "Speed by draft length and acceptance, from measured passes; the best length is marked",
        has_rounds,
        lengths,
        (8.2, 3.2),
    ),
    "timeline": (
        "Passes of plain decoding, and rounds of draft and verification, to scale",
        has_rounds,
        timeline,
        (8.2, 2.4),
    ),
    "context": (
        "Time of a pass by the tokens that are cached",
        lambda results: bool(of_passes(results, cached=1500)),
        context,
        (8.2, 3.8),
    ),
    "memory": ("Memory of a process", has("memory"), memory, (8.2, 3.8)),
}
"""By file: what a chart shows, where it can be drawn, how, and its size in inches."""
