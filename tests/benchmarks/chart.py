"""The README's chart, from the tables of docs/benchmarks.md: `python -m tests.benchmarks chart`."""

import re
from pathlib import Path

import click

from ov_specdec.palette import BLUE, GREY, ORANGE
from tests.benchmarks.charts import IMAGES, finish, new_figure, save
from tests.benchmarks.options import PATH

TABLES = {
    "Embedded pair, main of 27 M parameters": "## The embedded pair",
    "Main of 1 B parameters, embedded draft": "## A main of 1 B parameters",
}
METHODS = {
    "adaptive": "ov-specdec, default",
    "constant-2": "ov-specdec, 2 draft tokens",
    "constant-4": "ov-specdec, 4 draft tokens",
    "constant-8": "ov-specdec, 8 draft tokens",
    "constant-12": "ov-specdec, 12 draft tokens",
    "genai-plain": "openvino.genai, plain",
    "genai-draft-2": "openvino.genai, 2 draft tokens",
    "genai-draft-4": "openvino.genai, 4 draft tokens",
    "genai-draft-8": "openvino.genai, 8 draft tokens",
}
RATIO = re.compile(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)")


def ratios(text: str, heading: str) -> dict[str, tuple[float, float, float]]:
    """Ratio to plain decoding by method, with its quartiles, from the first table of a section."""
    table = re.search(r"(?:^\|.*\n)+", text.partition(f"\n{heading}\n")[2], re.MULTILINE)
    found = {}
    for row in table.group().splitlines() if table else ():
        method, _, ratio, *_ = row.strip("| ").split(" | ")
        if match := RATIO.fullmatch(ratio):
            median, low, high = map(float, match.groups())
            found[method] = median, low, high
    return found


@click.command()
@click.option("--output", type=PATH, default=IMAGES / "speed.png", help="[that of the README]")
def chart(output: Path) -> None:
    """Draw docs/images/speed.png from the tables of docs/benchmarks.md."""
    text = (IMAGES.parent / "benchmarks.md").read_text(encoding="utf-8")
    figure = new_figure(6.4, 4.4)
    tables = {title: ratios(text, heading) for title, heading in TABLES.items()}
    shown = {
        title: [method for method in METHODS if method in table] for title, table in tables.items()
    }
    heights = [len(methods) for methods in shown.values()]
    rows = figure.subplots(len(tables), sharex=True, height_ratios=heights)
    for axes, (title, table) in zip(rows, tables.items(), strict=True):
        for place, method in enumerate(reversed(shown[title])):
            median, low, high = table[method]
            color = ORANGE if method == "adaptive" else GREY if "genai" in method else BLUE
            spread = [[median - low], [high - median]]
            axes.barh(place, median, 0.62, color=color, xerr=spread, ecolor="black", capsize=3)
            axes.text(0.03, place, f"{median:.2f}", color="white", va="center", fontsize=8)
        labels = [METHODS[method] for method in reversed(shown[title])]
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set_title(title, fontsize=9, loc="left")
        axes.axvline(1.0, color="black", linestyle=":", linewidth=1)
        finish(axes)
    rows[-1].set_xlabel("times plain decoding by ov-specdec (median, quartiles)", fontsize=9)
    save(figure, output)
