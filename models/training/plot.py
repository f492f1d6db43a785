"""Draw the loss curves of the model card from the logs of training: ``DATA/{main,draft}.jsonl``."""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from config import say
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = {"train": "#9aa5b1", "heldout": "#0068b5", "depth": "#d64545"}
TOP = 6.0  # nats; the first minute, which begins at 8 and 22, would leave no room for the rest


def read(file: Path) -> list[dict[str, Any]]:
    """The records of a log, oldest first."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def curves(panel: Axes, log: list[dict[str, Any]]) -> None:
    """One model's losses by minutes, and where its depth grew."""
    for kind, label in (("train", "training batch"), ("heldout", "held-out packages")):
        points = [(record["minute"], record[kind]) for record in log if kind in record]
        marker = "o" if kind == "heldout" else ""
        x, y = zip(*points, strict=True)
        panel.plot(x, y, marker=marker, c=COLORS[kind], ms=3, label=label)
    for before, record in itertools.pairwise(log):
        if record["layers"] != before["layers"]:
            panel.axvline(record["minute"], color=COLORS["depth"], lw=0.8, ls=":")
            place = {"xycoords": ("data", "axes fraction"), "rotation": 90, "va": "top"}
            text = f"{record['layers']} layers"
            panel.annotate(text, (record["minute"], 0.98), ha="right", fontsize=7, **place)
    panel.legend(frameon=False)
    panel.spines[["top", "right"]].set_visible(False)


def draw(data: Path, out: Path) -> None:
    """Write the plot to ``out``: loss by minutes, one panel a model."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, name in zip(panels, ("main", "draft"), strict=True):
        curves(panel, read(data / f"{name}.jsonl"))
        panel.set(title=name, xlabel="minutes")
    panels[0].set(ylabel="nats a token", ylim=(None, TOP))
    figure.savefig(out)


def main() -> None:
    """Draw the curves of a data folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the logs")
    parser.add_argument("--out", type=Path, default=Path("../loss.svg"))
    args = parser.parse_args()
    draw(args.data, args.out)
    say(f"wrote {args.out}")


if __name__ == "__main__":
    main()
