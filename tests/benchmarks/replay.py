"""Drafters and draft lengths on recorded outputs, without a clock.

    python -m tests.benchmarks record-outputs --output OUTPUTS.json --prompts PROMPTS.jsonl
    python -m tests.benchmarks replay OUTPUTS.json --curve CURVE.json
    python -m tests.benchmarks replay OUTPUTS.json --drafters suffix,"best match" --lengths 15

A drafter proposes, the planner chooses the length, and what agrees with the output is accepted, as
it would be in greedy decoding. A pass takes what the cost curve says, such as a pipeline keeps in
the user's cache folder (`costs/`). "best match" knows the output. "model" are drafts that were
recorded too. With --noise, passes take about as long, and the planner learns how long they take.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random

import click

from ov_specdec.drafters.earlier_outputs import EarlierOutputs
from ov_specdec.errors import OptionError
from ov_specdec.planning.acceptance import SharedCounts
from ov_specdec.planning.costs import NOMINAL, CostCurve, FixedCurve, LiveCurve, PassCurve
from ov_specdec.planning.costs.kept import read_curve
from ov_specdec.planning.draft_length import AdaptiveLength, ConstantLength
from ov_specdec.planning.planner import Planner
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import PATH, several
from tests.benchmarks.record import Record, Row
from tests.benchmarks.simulated.machine import Machine, rounds_of
from tests.benchmarks.simulated.recorded import DRAFTERS, output_of
from tests.benchmarks.tables import across, table

LARGE = CostCurve(
    PassCurve({16: {1: 59.0, 2: 79.0, 3: 92.0, 4: 120.0, 6: 167.0, 8: 200.0, 16: 325.0}}, 8.0),
    PassCurve({16: {1: 0.8, 2: 1.0}}, 0.5),
)
"""Milliseconds of a main model of 1 B parameters with the embedded draft, two cores with AVX2."""

CURVES = {"nominal": NOMINAL, "1b": LARGE}
AUTO = "auto"


def replay_all(
    outputs: list[Row],
    drafter: str,
    length: str,
    curve: CostCurve,
    noise: float,
    round_: int,
    is_fresh: bool = False,
) -> list[Row]:
    """All outputs in one process: the planner and some drafters learn from one to the next.

    In the first round they come as they were recorded, later in an order that follows its number.
    is_fresh: the planner knows nothing of those before.
    """
    generator, common, earlier = Random(round_), SharedCounts(), EarlierOutputs()
    planner = Planner(LiveCurve(curve) if noise else FixedCurve(curve))
    order = generator.sample(range(len(outputs)), len(outputs)) if round_ else range(len(outputs))
    found: list[Row] = [{}] * len(outputs)
    for place, number in enumerate(order):
        row = outputs[number]
        if is_fresh:
            common, planner = (
                SharedCounts(),
                Planner(LiveCurve(curve) if noise else FixedCurve(curve)),
            )
        text = output_of(row, DRAFTERS[drafter](row, earlier))
        policy = (
            AdaptiveLength(text.drafter.sources, common)
            if length == AUTO
            else ConstantLength(int(length))
        )
        rounds = list(rounds_of(planner, policy, text, Machine(curve, noise), generator))
        tokens = sum(stats.num_generated for stats, _ in rounds)
        first = text.prompt + 1
        found[number] = {
            "place": place,
            "tokens": tokens,
            "passes": len(rounds),
            "seconds": sum(spent for _, spent in rounds),
            "plain seconds": sum(curve.main.at(1, first + i) for i in range(tokens)),
        }
        earlier.remember(None, row["prompt"] + row["output"], len(row["prompt"]))
        earlier.take_in()
    return found


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Tokens per pass and speed over plain decoding, by task, and by place in the process."""

    def cell(own: Sequence[Row]) -> str:
        tokens, passes, seconds, plain = (
            sum(row[name] for row in own)
            for name in ("tokens", "passes", "seconds", "plain seconds")
        )
        return f"{tokens / passes:.2f}, {plain / seconds:.2f}"

    titled = [{**row, "method": f"{row['drafter']} @{row['length']}"} for row in rows]
    yield table(titled, ["task"], across(titled, "method", cell))
    if any(row["round"] for row in rows):
        in_order = sorted(titled, key=lambda row: row["place"])
        yield table(in_order, ["place"], across(titled, "method", cell))


def curve_named(name: str) -> CostCurve:
    """One that has a name here, or that of a file."""
    curve = CURVES.get(name) or read_curve(Path(name))
    if curve is None:
        raise OptionError(f"--curve '{name}' is no cost curve: name a file, or {', '.join(CURVES)}")
    return curve


@click.command()
@click.argument("outputs", type=PATH)
@several(
    *("--drafters", str, ("prompt-lookup", "suffix", "suffix with earlier")),
    says="Who drafts.",
    among=DRAFTERS,
)
@several("--lengths", str, (AUTO,), says="Draft tokens in each round; auto is the planner's.")
@click.option("--curve", default="nominal", show_default=True, help="Or 1b, or a file.")
@click.option("--noise", default=0.0, help="Relative deviation of each pass.")
@click.option("--rounds", default=1, show_default=True, help="Each in another order.")
@click.option("--fresh", is_flag=True, help="The planner begins anew with each output.")
@measures
def replay(
    outputs: Path,
    drafters: tuple[str, ...],
    lengths: tuple[str, ...],
    curve: str,
    noise: float,
    rounds: int,
    fresh: bool,
) -> Measurements:
    """Replay drafters on OUTPUTS, recorded ones, without a clock."""
    costs = curve_named(curve)
    rows = [row for row in Record.read(outputs, "record-outputs").rows if len(row["output"]) > 1]
    for drafter in drafters:
        own = [row for row in rows if drafter != "model" or row.get("drafts")]
        for length in lengths:
            for round_ in range(rounds):
                run = cache(partial(replay_all, own, drafter, length, costs, noise, round_, fresh))
                for place, row in enumerate(own):
                    key = {"task": row["task"], "number": row["number"], "drafter": drafter}
                    key |= {"length": length, "round": round_}
                    yield key, partial(lambda run, place: run()[place], run, place)
