"""The planner on recorded drafts and measured machines, without a clock: seconds for all of it.

    python -m tests.benchmarks record-outputs --output OUTPUTS.json --drafts 16
    python -m tests.benchmarks replay OUTPUTS.json --machines "avx512 1B 100M","vnni 1B 100M"

Draft tokens are accepted where they agree with the output, as in greedy decoding, and passes take
what the machine's curve says. Compared are the planner, the best constant length for all outputs
together, and perfect foresight: the lengths that an oracle of all agreements would choose if
changes of size were free. A round's regret is the time lost against the best that could follow.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

import click

from ov_specdec.drafters.earlier_outputs import EarlierOutputs
from ov_specdec.errors import OptionError
from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.cost_source import read_curve
from ov_specdec.planning.costs import CostCurve, Costs, LiveCurve
from ov_specdec.planning.draft_length import AdaptiveLength, ConstantLength, Offers, Plan, Policy
from ov_specdec.planning.planner import Planner
from tests.benchmarks.machines import MACHINES
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import PATH, several
from tests.benchmarks.record import Record, Row
from tests.benchmarks.simulated.machine import Machine, rounds_of
from tests.benchmarks.simulated.recorded import DRAFTERS, Output, output_of
from tests.benchmarks.tables import across, average, table

LENGTHS = (*range(11), 12, 15)
START = 8
"""Rounds that count as the start of a text."""

Times = list[tuple[int, float]]
"""Of each round: generated tokens before it, and its seconds."""


def run(
    outputs: Sequence[Row], drafter: str, machine: Machine, length: int | None = None, seed: int = 0
) -> list[Times]:
    """The rounds of all outputs in one process; length: None for the planner's."""
    generator, common, earlier = Random(seed), Counts(), EarlierOutputs()
    curve = machine.curve
    costs = LiveCurve(curve) if machine.noise else Costs(curve)
    planner = Planner(costs)
    found = []
    for row in outputs:
        text = output_of(row, DRAFTERS[drafter](row, earlier))
        policy: Policy = AdaptiveLength(common, costs) if length is None else ConstantLength(length)
        done, times = 1, []
        for stats, seconds in rounds_of(planner, policy, text, machine, generator):
            times.append((done, seconds))
            done += stats.num_generated
        found.append(times)
        earlier.remember(None, row["prompt"] + row["output"], len(row["prompt"]))
        earlier.take_in()
    return found


def foresight(text: Output, curve: CostCurve) -> list[float]:
    """The least seconds from each token of a text to its end, if agreements are known before."""
    places = range(1, text.size)

    def longest(offers: Offers) -> Plan:
        return Plan(LENGTHS[-1], "constant", offers[-1])

    drafts = {done: text.draft(done, longest, Random(0)) for done in places}
    left = [0.0] * (text.size + 1)
    for done in reversed(places):
        drafted = drafts[done]
        step = curve.drafting[0] * drafted.takes_passes
        left[done] = min(
            n * step + curve.main.at(n + 1) + left[min(done + n + 1, text.size)]
            for n in range(drafted.num_accepted + 1)
        )
    return left


def total(times: Sequence[Times]) -> float:
    """Seconds of all rounds."""
    return sum(seconds for own in times for _, seconds in own)


def compare(outputs: Sequence[Row], drafter: str, curve: CostCurve, noise: float) -> Row:
    """The planner against constant lengths and foresight, and its regret in plain passes."""
    machine = Machine(curve, noise)
    constant = {n: total(run(outputs, drafter, Machine(curve), n)) for n in LENGTHS}
    best = min(constant, key=constant.__getitem__)
    own = run(outputs, drafter, machine)
    texts = [output_of(row, DRAFTERS[drafter](row, EarlierOutputs())) for row in outputs]
    bounds = [foresight(text, curve) for text in texts]
    regrets: dict[bool, list[float]] = {True: [], False: []}
    for text, times, left in zip(texts, own, bounds, strict=True):
        ends = [done for done, _ in times[1:]] + [text.size]
        for number, ((done, seconds), end) in enumerate(zip(times, ends, strict=True)):
            plain = curve.main.at(1)
            regrets[number < START].append((seconds + left[end] - left[done]) / plain)
    return {
        "to best": constant[best] / total(own),
        "best": best,
        "to plain": constant[0] / total(own),
        "to foresight": sum(left[1] for left in bounds) / total(own),
        "regret": sum(regrets[False]) / max(len(regrets[False]), 1),
        "regret at the start": sum(regrets[True]) / max(len(regrets[True]), 1),
    }


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """The planner over the best constant length, plain decoding and foresight, and its regret."""
    names = ("to best", "best", "to plain", "to foresight", "regret", "regret at the start")
    yield table(rows, ["machine", "drafter"], {name: average(name, ".3f") for name in names})
    if len({row["task"] for row in rows}) > 1:
        yield table(rows, ["machine", "drafter"], across(rows, "task", average("to best", ".3f")))


def curve_named(name: str) -> CostCurve:
    """That of a machine, or of a file in which a pipeline has kept it."""
    curve = MACHINES.get(name) or read_curve(Path(name))
    if curve is None:
        raise OptionError(f"'{name}' is no cost curve: name a file, or {', '.join(MACHINES)}")
    return curve


@click.command()
@click.argument("outputs", type=PATH)
@several("--drafters", str, ("model",), says="Who drafts.", among=DRAFTERS)
@several("--machines", str, ("nominal",), says="What passes take: names, or files of curves.")
@click.option("--noise", default=0.0, help="Relative deviation of each pass that is seen.")
@measures
def replay(
    outputs: Path, drafters: tuple[str, ...], machines: tuple[str, ...], noise: float
) -> Measurements:
    """Compare the planner with constant lengths on recorded OUTPUTS, without a clock."""
    rows = [row for row in Record.read(outputs, "record-outputs").rows if len(row["output"]) > 1]
    for machine in machines:
        curve = curve_named(machine)
        for drafter in drafters:
            for task in dict.fromkeys(row["task"] for row in rows):
                own = [row for row in rows if row["task"] == task]
                own = [row for row in own if drafter != "model" or row.get("drafts")]
                if own:
                    key = {"machine": machine, "drafter": drafter, "task": task}
                    yield key, partial(compare, own, drafter, curve, noise)
