"""The planner on recorded drafts and measured machines, without a clock: seconds for all of it.

Draft tokens are accepted where they agree with the output, as in greedy decoding, and passes take
what the machine's curve says. Compared are the planner, the best constant length for all outputs
together, and perfect foresight: the lengths that an oracle of all agreements would choose if
changes of size were free. A round's regret is the time lost against the best that could follow.
The planner knows what passes take, or learns it anew in each text ("learned").
"""

import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import click

from lab.benchmarks.machines import MACHINES
from lab.benchmarks.options import PATH, several
from lab.benchmarks.record import Row, select
from lab.benchmarks.simulation import DRAFTERS, Output, output_of, rounds_of
from lab.benchmarks.tables import markdown
from ov_specdec.cli.terminal import with_errors
from ov_specdec.drafters.suffix_index import EarlierOutputs
from ov_specdec.errors import OptionError
from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import NOMINAL, CostCurve, Costs
from ov_specdec.planning.kept_costs import read_curve
from ov_specdec.planning.learned_costs import LearnedCosts
from ov_specdec.planning.plan import Offers, Plan
from ov_specdec.planning.planner import Planner
from ov_specdec.planning.policies import ConstantLength, PlannedLength, Policy

LENGTHS = (*range(11), 12, 15)
Times = list[tuple[int, float]]
"""Of each round: generated tokens before it, and its seconds."""


def run(
    outputs: Sequence[Row],
    drafter: str,
    curve: CostCurve,
    length: int | None = None,
    make_costs: Callable[[CostCurve], Costs] = Costs,
) -> list[Times]:
    """The rounds of all outputs in one process; length: None for the planner's.

    make_costs: those that it knows before each text.
    """
    common, earlier, planner = Counts(), EarlierOutputs(), Planner(Costs(curve))
    found = []
    for row in outputs:
        costs = planner.costs = make_costs(curve)
        text = output_of(row, DRAFTERS[drafter](row, earlier))
        policy: Policy = PlannedLength(common, costs) if length is None else ConstantLength(length)
        done, times = 1, []
        for stats in rounds_of(planner, policy, text, curve):
            times.append((done, stats.seconds))
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

    drafts = {done: text.draft(done, longest) for done in places}
    left = [0.0] * (text.size + 1)
    for done in reversed(places):
        drafted = drafts[done]
        step, once, _ = (each * drafted.takes_passes for each in curve.drafting)
        left[done] = min(
            n * step + once * (n > 0) + curve.main.at(n + 1) + left[min(done + n + 1, text.size)]
            for n in range(drafted.num_accepted + 1)
        )
    return left


def total(times: Sequence[Times]) -> float:
    """Seconds of all rounds."""
    return sum(seconds for own in times for _, seconds in own)


COLUMNS = ("to best", "learned to best", "best", "to plain", "to foresight", "regret")


def compare(outputs: Sequence[Row], drafter: str, curve: CostCurve) -> dict[str, float]:
    """The planner against constant lengths and foresight, and its regret in plain passes."""
    constant = {n: total(run(outputs, drafter, curve, n)) for n in LENGTHS}
    best = min(constant, key=constant.__getitem__)
    own = run(outputs, drafter, curve)
    texts = [output_of(row, DRAFTERS[drafter](row, EarlierOutputs())) for row in outputs]
    bounds = [foresight(text, curve) for text in texts]
    regrets = []
    for text, times, left in zip(texts, own, bounds, strict=True):
        ends = [done for done, _ in times[1:]] + [text.size]
        for (done, seconds), end in zip(times, ends, strict=True):
            regrets.append((seconds + left[end] - left[done]) / curve.main.at(1))
    learned = total(run(outputs, drafter, curve, make_costs=lambda _: LearnedCosts(NOMINAL)))
    oracle = sum(left[1] for left in bounds)
    ratios = (constant[0] / total(own), oracle / total(own), sum(regrets) / max(len(regrets), 1))
    values = (constant[best] / total(own), constant[best] / learned, best, *ratios)
    return dict(zip(COLUMNS, values, strict=True))


def curve_named(name: str) -> CostCurve:
    """That of a machine, or of a file in which a pipeline has kept it."""
    curve = MACHINES.get(name) or read_curve(Path(name))
    if curve is None:
        raise OptionError(f"'{name}' is no cost curve: name a file, or {', '.join(MACHINES)}")
    return curve


@click.command()
@with_errors
@click.argument("outputs", type=PATH)
@several("--drafters", str, ("model",), says="Who drafts.", among=DRAFTERS)
@several("--machines", str, ("nominal",), says="What passes take: names, or files of curves.")
def replay(outputs: Path, drafters: tuple[str, ...], machines: tuple[str, ...]) -> None:
    """Compare the planner with constant lengths on recorded OUTPUTS, without a clock."""
    rows = [json.loads(line) for line in outputs.read_text("utf-8").splitlines()]
    lines = [["machine", "drafter", "task", *COLUMNS]]
    for machine, drafter in product(machines, drafters):
        known = [row for row in rows if drafter != "model" or row.get("right")]
        for task in dict.fromkeys(row["task"] for row in known):
            found = compare(select(known, task=task), drafter, curve_named(machine))
            lines.append([machine, drafter, task, *(f"{found[name]:.3f}" for name in COLUMNS)])
    click.echo(markdown(lines))
