"""Charts in the documentation: SVG files that are read on light and dark pages."""

from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[2] / "docs" / "images"

INK = "#24292f"
"""Text and lines of a chart; in an SVG file they follow the page's colour scheme."""

STYLE = """<style>svg { color: #24292f }
@media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }</style>"""


def new_figure(width: float, height: float) -> Any:
    """An empty figure of so many inches; its parts do not overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def finish(axes: Any) -> None:
    """What all have in common: no box."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


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
