"""Charts as PNG files in the documentation."""

from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def new_figure(width: float, height: float) -> Any:
    """An empty figure of so many inches; its parts do not overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def finish(axes: Any) -> None:
    """What all have in common: no box, and a legend for what has labels."""
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def save(figure: Any, file: Path) -> None:
    """Write a figure as the same bytes each time."""
    figure.savefig(file, metadata={"Software": None})
