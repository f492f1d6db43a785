"""What the planner weighs, as a picture: `python -m tests.benchmarks planner-plot`."""

from itertools import accumulate
from pathlib import Path

import click

from ov_specdec.palette import BLUE, GREY, ORANGE
from ov_specdec.planning.costs import SIZES, CostCurve, PassCurve
from tests.benchmarks.drawing import IMAGES, finish, new_figure, save
from tests.benchmarks.options import PATH

CURVE = CostCurve(
    PassCurve(
        {16: {1: 5.9, 2: 6.9, 3: 7.5, 4: 7.1, 6: 9.8, 8: 11.2, 12: 13.0, 16: 13.9}}, change=5.0
    ),
    PassCurve({16: {1: 0.8, 2: 0.95}}, change=1.1),
)
"""The embedded pair, milliseconds, two cores of an AMD EPYC with AVX2."""

ACCEPTANCE = {0.5: GREY, 0.7: BLUE, 0.9: ORANGE}


def speed(acceptance: float, length: int) -> float:
    """Tokens per second to expect of a draft length."""
    alive = acceptance**length
    step, again = CURVE.drafting(16)
    tokens = list(accumulate(acceptance**n for n in range(length + 1)))[-1]
    drafting = length * step + alive * again if length else 0.0
    return 1000.0 * tokens / (CURVE.main.at(length + 1, 16) + drafting)


@click.command()
@click.option("--output", type=PATH, default=IMAGES / "planner.png", help="[that of the docs]")
def planner_plot(output: Path) -> None:
    """Draw docs/images/planner.png, what the planner weighs."""
    figure = new_figure(9.0, 3.4)
    costs, speeds = figure.subplots(1, 2)
    row = CURVE.main.seconds[16]
    costs.plot(SIZES, [row[size] for size in SIZES], "o-", color=BLUE, label="main model")
    changed = [row[size] + CURVE.main.change for size in SIZES]
    costs.plot(SIZES, changed, "o:", color=GREY, label="the same after another size")
    costs.set(xlabel="tokens in the pass", ylabel="ms", title="What passes cost")
    lengths = range(SIZES[-1])
    for acceptance, color in ACCEPTANCE.items():
        values = [speed(acceptance, n) for n in lengths]
        best = max(lengths, key=values.__getitem__)
        speeds.plot(lengths, values, color=color, label=f"{acceptance:.0%} accepted")
        speeds.plot(best, values[best], "o", color=color)
    speeds.set(xlabel="draft tokens", ylabel="tokens/s", title="What is to be expected of lengths")
    for axes in (costs, speeds):
        axes.set_ylim(0, None)
        finish(axes)
    save(figure, output)
