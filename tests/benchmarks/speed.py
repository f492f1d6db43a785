"""Drafters, draft lengths and openvino.genai against each other, in turns.

    python -m tests.benchmarks speed --methods none,suffix,model --prompts TASKS --output FILE
    python -m tests.benchmarks speed --methods model@0,model,model@4,model@8,genai@4 --output FILE

A method is a drafter: `none`, `prompt-lookup`, `suffix`, `model`, `both`; `model:retokenize` with
that pairing, `model@4` with a constant length, `model@0` plain decoding beside its models,
`genai@4` openvino.genai with the draft model, `genai-lookup@4` with prompt lookup, `genai` plain.
What comes after `#` tells a method from itself.
Each prompt is continued by all of them before the next one, beginning with another each time.

Speeds are tokens per second after the first token; ratios are medians over turns, with bootstrap
intervals of 95 %. Lengths are compared with the best constant one, which is chosen on one half of
the turns and measured on the other. How a first process fares, whose costs nobody has measured:

    XDG_CACHE_HOME=$(mktemp -d) python -m tests.benchmarks speed --cold --seconds 1 --output FILE
"""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

import click

from tests.benchmarks.measuring import Measurements, in_turns, measures
from tests.benchmarks.methods import GENAI, Method, Runs
from tests.benchmarks.options import Models, model_options, prompt_options, several
from tests.benchmarks.record import Row, select
from tests.benchmarks.tables import Cell, interval, numbers, ratios, table
from tests.benchmarks.texts import Prompts

BASES = ("none", "plain", "prompt-lookup", "model")
"""What others are compared with, beside the first method."""


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each task and method; then the planner's length against constant ones."""
    rows = [row for row in rows if row["speed"] is not None]
    names = list(dict.fromkeys(row["method"] for row in rows))
    bases = dict.fromkeys([*names[:1], *(name for name in BASES if name in names)])
    columns: dict[str, Cell] = {
        "turns": lambda own: str(len(own)),
        **{f"speed / {base}": partial(to_base, rows, base) for base in bases},
        "tokens per pass": lambda own: share(own, "tokens", "passes", ".2f"),
        "accepted": lambda own: share(own, "accepted", "drafted", ".0%"),
    }
    yield table(rows, ["task", "method"], columns)
    for name in names:
        found = {
            " and ".join(chosen): interval(values)
            for family in (f"{name}@", f"{GENAI}@")
            for values, chosen in [to_best(rows, name, constant(names, family))]
            if values and "@" not in name
        }
        if found:
            columns = {
                f"speed / best of {best}": lambda _, s=shown: s for best, shown in found.items()
            }
            yield table(select(rows, method=name), ["method"], columns)


def constant(names: Sequence[str], family: str) -> list[str]:
    """Those of a family that draft, and always as much."""
    return [name for name in names if name.startswith(family) and Method(name).length]


def to_base(rows: Sequence[Row], base: str, own: Sequence[Row]) -> str:
    """The speed of a method over that of another, in the same turns."""
    task, method = own[0]["task"], own[0]["method"]
    return interval(ratios(select(rows, task=task), method, base, "speed"))


def to_best(
    rows: Sequence[Row], method: str, others: Sequence[str]
) -> tuple[list[float], list[str]]:
    """The same with the best of others, chosen on the other half of the turns; and those two."""
    turns = sorted({row["turn"] for row in rows})
    found, chosen = list[float](), list[str]()
    for half in range(2 if others and len(turns) > 1 else 0):
        choosing, measured = (
            [row for row in rows if row["turn"] in part]
            for part in (turns[half::2], turns[1 - half :: 2])
        )
        speeds = {name: numbers(select(choosing, method=name), "speed") for name in others}
        chosen.append(max(others, key=lambda name: median(speeds[name] or [0.0])))
        found += ratios(measured, method, chosen[-1], "speed")
    return found, list(dict.fromkeys(chosen))


def share(rows: Sequence[Row], part: str, whole: str, form: str) -> str:
    """A sum over another one."""
    total = sum(numbers(rows, whole))
    return format(sum(numbers(rows, part)) / total, form) if total else ""


@click.command()
@model_options
@prompt_options("code")
@several("--methods", str, ("none", "prompt-lookup", "suffix"), says="In turns.")
@click.option("--max-new-tokens", default=96, show_default=True, help="Of each output.")
@click.option("--rounds", default=1, show_default=True, help="Turns of each prompt.")
@click.option("--temperature", default=0.0, help="Above 0, tokens are drawn.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the end of an output.")
@click.option("--shared", is_flag=True, help="Look into earlier outputs.")
@click.option("--static-shapes", type=click.Choice(["auto", "none"]), default="auto")
@click.option("--cold", is_flag=True, help="Without a generation of each method before.")
@measures
def speed(
    models: Models,
    prompts: Prompts,
    methods: tuple[str, ...],
    max_new_tokens: int,
    rounds: int,
    temperature: float,
    ignore_eos: bool,
    shared: bool,
    static_shapes: str,
    cold: bool,
) -> Measurements:
    """Measure drafters, draft lengths and openvino.genai against each other, in turns."""
    options: Row = {"max_new_tokens": max_new_tokens, "cache_prompt": shared}
    options |= {"ignore_eos": True} if ignore_eos else {}
    options |= {"temperature": temperature} if temperature else {}
    tasks = [task for task, _ in prompts.tasks]
    opened = [Method(name) for name in methods]
    with Runs(opened, models, {"static_shapes": static_shapes}, options) as runs:
        ids = [prompt for _, prompt in runs.encoded(prompts)]
        if not cold:
            runs.warm_up(ids[-1])
        for turn in range(rounds * len(ids)):
            place = turn % len(ids)
            for name in in_turns(methods, turn):
                key = {"turn": turn, "task": tasks[place], "method": name}
                yield key, partial(runs.run, Method(name), ids[place])
