"""The plots of the sweeps, as PNG files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ov_specdec.palette import BLUE, GREEN, GREY, ORANGE
from ov_specdec.stats import RoundStats
from tests.benchmarks.peers.plots import draw, finish, require_matplotlib
from tests.benchmarks.sweep.measure import Sweeps


def write_plots(folder: Path, sweeps: Sweeps) -> list[Path]:
    """Draw every plot into `folder`; returns the files.

    `BenchmarkError` where matplotlib is missing.
    """
    require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    plots: dict[str, Callable[[Any], None]] = {
        "speed-by-length": lambda figure: _speed_by_length(figure, sweeps),
        "temperature": lambda figure: _temperature(figure, sweeps),
        "pass-cost": lambda figure: _pass_cost(figure, sweeps),
        "acceptance-by-position": lambda figure: _by_position(figure, sweeps),
        "timeline": lambda figure: _timeline(figure, sweeps.timeline),
    }
    return [draw(folder / f"{name}.png", content) for name, content in plots.items()]


def _speed_by_length(figure: Any, sweeps: Sweeps) -> None:
    axes = figure.subplots()
    lengths = [length for length, _ in sweeps.by_length]
    speeds = [point.tokens_per_second for _, point in sweeps.by_length]
    axes.plot(lengths, speeds, "o-", color=BLUE, label="constant length")
    adaptive, plain = sweeps.adaptive.tokens_per_second, sweeps.plain.tokens_per_second
    axes.axhline(adaptive, color=ORANGE, linestyle="--", label="adaptive length")
    axes.axhline(plain, color=GREY, linestyle=":", label="plain decoding")
    axes.set(xlabel="draft length", ylabel="tokens/s", xticks=lengths)
    finish(axes)


def _temperature(figure: Any, sweeps: Sweeps) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    temperatures = [temperature for temperature, _, _ in sweeps.by_temperature]
    speculative = [point for _, _, point in sweeps.by_temperature]
    plain = [point.tokens_per_second for _, point, _ in sweeps.by_temperature]
    speeds = [point.tokens_per_second for point in speculative]
    above.plot(temperatures, speeds, "o-", color=BLUE, label="adaptive length")
    above.plot(temperatures, plain, "s:", color=GREY, label="plain decoding")
    above.set(ylabel="tokens/s")
    rates = [100 * (point.acceptance_rate or 0.0) for point in speculative]
    below.plot(temperatures, rates, "o-", color=BLUE, label="adaptive length")
    below.set(xlabel="temperature (0: greedy)", ylabel="acceptance (%)")
    finish(above)
    finish(below)


def _pass_cost(figure: Any, sweeps: Sweeps) -> None:
    axes = figure.subplots()
    styles = {"main": ("o-", BLUE), "draft": ("s--", ORANGE)}
    for name, costs in sweeps.pass_seconds.items():
        style, colour = styles[name]
        sizes, seconds = zip(*costs, strict=True)
        axes.plot(sizes, [1000 * s for s in seconds], style, color=colour, label=f"{name} model")
    axes.set(xlabel="tokens in the pass", ylabel="time of the pass (ms)")
    finish(axes)


def _by_position(figure: Any, sweeps: Sweeps) -> None:
    axes = figure.subplots()
    positions = range(1, len(sweeps.by_position) + 1)
    rates = [100 * accepted / judged for judged, accepted in sweeps.by_position]
    bars = axes.bar(positions, rates, color=BLUE)
    axes.bar_label(bars, [str(reached) for reached, _ in sweeps.by_position], fontsize=7)
    axes.set(
        xlabel="place in the draft (above its bar: how often reached)",
        ylabel="accepted, of those that were judged (%)",
        xticks=list(positions),
    )
    finish(axes)


def _timeline(figure: Any, rounds: Sequence[RoundStats]) -> None:
    """One bar from left to right; each round is drafting, verifying, rollback."""
    axes = figure.subplots()
    parts = (
        ("drafting", ORANGE, "white", "draft_seconds"),
        ("verifying", BLUE, "white", "verify_seconds"),
        # Hardly wider than a line, so it needs an edge that can be seen.
        ("rollback", GREEN, GREEN, "rollback_seconds"),
    )
    for row, (_, colour, edge, seconds) in enumerate(parts):
        bars, now = [], 0.0
        for round_ in rounds:
            offset = sum(getattr(round_, part[3]) for part in parts[:row])
            bars.append((1000 * (now + offset), 1000 * getattr(round_, seconds)))
            now += round_.seconds
        axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=colour, edgecolors=edge, linewidth=0.5)
    axes.set(xlabel="time (ms); the first pass reads the prompt", ylim=(2.6, -1.1))
    axes.set_yticks(range(len(parts)), [part[0] for part in parts])
    now = 0.0
    for round_ in rounds:
        middle = 1000 * (now + round_.seconds / 2)
        axes.annotate(str(round_.num_generated), (middle, -0.6), ha="center", fontsize=6)
        now += round_.seconds
    axes.set_title("tokens gained per round, above its bars", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
