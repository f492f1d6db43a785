"""`python -m tests.benchmarks charts`: what docs/figures has, as a chart in docs/images."""

from pathlib import Path
from statistics import median
from typing import Any

import click

from ov_specdec.cli.terminal import with_errors
from ov_specdec.results.chunks import BLUE, GREY, ORANGE
from tests.benchmarks.drawing import IMAGES, INK, finish, new_figure, save_svg
from tests.benchmarks.figures.results import (
    FOLDER,
    PAIRS,
    SINGLE,
    Results,
    best,
    count,
    speedups,
)
from tests.benchmarks.options import PATH
from tests.benchmarks.record import Row
from tests.benchmarks.tables import LEAST, quartiles_of

WHAT = "speed over openvino.genai's plain decoding, greedy (median, quartiles)"


@click.command()
@with_errors
@click.option("--figures", "folder", type=PATH, default=FOLDER, help="[docs/figures]")
@click.option("--output", type=PATH, default=IMAGES, help="Folder. [docs/images]")
def charts(folder: Path, output: Path) -> None:
    """Draw the chart of docs/images from each file of docs/figures."""
    for results in Results.all(folder):
        found = {pair: results.rows(part, heat=0.0) for pair, part in SINGLE.items()}
        if shown := {pair: rows for pair, rows in found.items() if rows}:
            file = output / f"speed-{results.name}.svg"
            save_svg(speeds(results, shown), file, results.stamp)
            click.echo(file)


def speeds(results: Results, shown: dict[str, list[Row]]) -> Any:
    """For each pair the default, and the best of openvino.genai's settings."""
    figure = new_figure(6.4, 1.2 + 0.6 * len(shown))
    axes = figure.subplots()
    for place, rows in enumerate(reversed(shown.values())):
        peer = best(rows, "genai") or ""
        bars = {"default": (0.2, ORANGE), peer: (-0.2, GREY if peer == "genai-plain" else BLUE)}
        for method, (offset, colour) in bars.items():
            values = speedups(rows, method, "genai-plain")
            middle = median(values)
            looks = {"color": colour, "ecolor": INK, "capsize": 2}
            if len(values) >= LEAST:
                low, _, high = quartiles_of(values)
                looks["xerr"] = [[middle - low], [high - middle]]
            axes.barh(place + offset, middle, 0.36, **looks)
            axes.text(0.02, place + offset, f"{middle:.2f}", va="center", fontsize=8)
    names = [f"{PAIRS[pair]}\n(n = {count(rows)})" for pair, rows in reversed(shown.items())]
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    axes.axvline(1.0, color=INK, linestyle=":", linewidth=1)
    axes.barh(0, 0, color=ORANGE, label="default")
    axes.barh(0, 0, color=BLUE, label="openvino.genai, best draft length")
    axes.set_xlabel(WHAT, fontsize=9)
    finish(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)  # above the bars
    figure.supxlabel(results.stamp.replace("; ", "\n", 1), fontsize=6.5, x=0.01, ha="left")
    return figure
