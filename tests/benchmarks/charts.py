"""`python -m tests.benchmarks charts`: what docs/figures has, as a chart in docs/images."""

from pathlib import Path
from statistics import median
from typing import Any

import click

from ov_specdec.cli.terminal import with_errors
from ov_specdec.results.origins import BLUE, GREY, ORANGE
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

IMAGES = Path(__file__).parents[2] / "docs" / "images"

INK = "#24292f"
"""Text and lines of a chart; in an SVG file they follow the page's colour scheme."""

STYLE = """<style>svg { color: #24292f }
@media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }</style>"""

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
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(6.4, 1.2 + 0.6 * len(shown)), dpi=150, layout="constrained")
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
    axes.spines[["top", "right"]].set_visible(False)
    legend = {"frameon": False, "fontsize": 8, "ncols": 2}
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), **legend)  # above the bars
    figure.supxlabel(results.stamp.replace("; ", "\n", 1), fontsize=6.5, x=0.01, ha="left")
    return figure


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
    settings = {**ink, "svg.fonttype": "none", "svg.hashsalt": "0"}
    with matplotlib.rc_context(settings):
        metadata = {"Date": None, "Creator": None, "Description": about}
        figure.savefig(file, transparent=True, metadata=metadata)
    drawn = file.read_text(encoding="utf-8").replace(INK, "currentColor")
    head, start, rest = drawn.partition("<defs>")
    file.write_text(f"{head}{STYLE}\n {start}{rest}", encoding="utf-8")
