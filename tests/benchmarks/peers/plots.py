"""The plots of a benchmark, as PNG files. Legible in print: lines differ in marker and dash too."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ov_specdec.errors import install
from ov_specdec.palette import BLUE, GREEN, GREY, ORANGE
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.methods import BASELINE

SIZE = (6.4, 4.0)
DPI = 150


def plot_concurrency(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Draw tokens/s against concurrency, a line per method. rows: those of `summarize_loads`.

    `BenchmarkError` where matplotlib is missing.
    """
    require_matplotlib()
    return draw(file, lambda figure: _speed_by_concurrency(figure, rows))


def plot_speed(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Draw tokens/s, a bar per method with its quartiles. rows: those of `summarize`.

    `BenchmarkError` where matplotlib is missing.
    """
    require_matplotlib()
    return draw(file, lambda figure: _speed(figure, rows))


def require_matplotlib() -> None:
    """Make matplotlib draw without a screen; `BenchmarkError` where it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise BenchmarkError(
            f"plots need matplotlib: {install('bench')} (tables are written)"
        ) from error
    matplotlib.use("agg")


def draw(file: Path, content: Callable[[Any], None]) -> Path:
    """Draw a figure into a file, and return that."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    content(figure)
    figure.savefig(file)
    return file


def _speed_by_concurrency(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    axes = figure.subplots()
    colours, dashes, markers = (BLUE, ORANGE, GREEN, GREY), ("-", "--", ":"), "os^vDPX*"
    for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        own = [row for row in rows if row["method"] == method]
        axes.plot(
            [row["concurrency"] for row in own],
            [row["tokens/s"] for row in own],
            color=colours[number % len(colours)],
            linestyle=dashes[number // len(colours) % len(dashes)],
            marker=markers[number % len(markers)],
            label=method,
        )
    axes.set_xscale("log", base=2)
    ticks = sorted({row["concurrency"] for row in rows})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="requests at a time", ylabel="tokens/s, all requests together")
    finish(axes)


def _speed(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    axes = figure.subplots()
    for place, row in enumerate(rows):
        speed, low, high = (row[f"tokens/s{part}"] for part in ("", " (q1)", " (q3)"))
        color = GREY if row["method"] == BASELINE else BLUE
        axes.bar(place, speed, 0.7, color=color, yerr=[[speed - low], [high - speed]], capsize=3)
    axes.set_xticks(range(len(rows)), [row["method"] for row in rows], rotation=30, ha="right")
    axes.set(ylabel="tokens/s (median, quartiles)")
    finish(axes)


def finish(axes: Any) -> None:
    """What all charts share: from zero to a little above, a light grid, a legend for lines."""
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
