"""The plot of a benchmark: the speedup of each method over plain decoding."""

from collections.abc import Sequence
from pathlib import Path

from ov_specdec.bench.summary import Row
from ov_specdec.palette import BLUE, GREEN, GREY, ORANGE


def plot_ratios(file: Path, rows: Sequence[Row]) -> None:
    """Draw speedups over plain decoding, as PNG; `ImportError` without matplotlib."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(row.method for row in rows))
    numbers = list(dict.fromkeys(row.concurrency for row in rows))
    width = 0.8 / len(numbers)
    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.subplots()
    for i, number in enumerate(numbers):
        own = [row for row in rows if row.concurrency == number]
        spreads = [row.ratio for row in own]
        axes.bar(
            [methods.index(row.method) + (i + 0.5) * width - 0.4 for row in own],
            [spread.median for spread in spreads],
            width,
            yerr=[[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]],
            color=(BLUE, ORANGE, GREEN, GREY)[i % 4],
            hatch=("", "//", "..")[i // 4 % 3],
            capsize=2,
            label=f"{number}: plain is {own[0].tokens_per_second.median:.0f} tokens/s",
        )
    axes.axhline(1.0, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(methods)), methods, rotation=30, ha="right")
    axes.set_ylabel("speedup over plain decoding (median, quartiles)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="concurrency", frameon=False, fontsize=8)
    figure.savefig(file)
