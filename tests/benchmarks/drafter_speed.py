"""Drafters against each other and against plain decoding, in turns, by the task of the prompt.

    python -m tests.benchmarks drafter-speed RESULTS.jsonl --prompts PROMPTS.jsonl --seconds 200
    python -m tests.benchmarks drafter-speed RESULTS.jsonl

One process, one pipeline for each drafter, `none` among them; `model:retokenize` is one with that
pairing, `model@4` one with a constant length. Each prompt is continued by all of them before the
next one, beginning with another each time. Runs with --seconds add to the results, and go on after
the prompts that are in there; then all results are shown. Speeds are tokens per second after the
first token; ratios are medians over prompts, with bootstrap intervals of 95 %. With --shared, the
suffix drafter looks into earlier outputs of its pipeline too.
"""

import json
from collections import defaultdict
from time import perf_counter

import click

from ov_specdec import SpeculativePipeline
from ov_specdec.speculation.drafters.factory import WITH_DRAFT
from tests.benchmarks.figures import head, interval, row
from tests.benchmarks.options import PATH, pair_options, several
from tests.benchmarks.texts import read_tasks

PLAIN = "none"


def measure(path, *, main, draft, drafters, prompts, tokens, rounds, ignore_eos, shared, seconds):
    """Append a line per generation, until the time is up or all prompts were continued."""
    pipelines = {}
    for name in dict.fromkeys(name.partition("@")[0] for name in drafters):
        drafter, _, pairing = name.partition(":")
        models = {"main": main, "drafter": drafter, "pairing": pairing or None}
        if drafter in WITH_DRAFT:
            models["draft"] = draft
        pipelines[name] = SpeculativePipeline(**models, fixed_sizes="auto")
        pipelines[name].prepare()
        pipelines[name].generate("def main():\n", max_new_tokens=24, cache_prompt=False)
    options = {"max_new_tokens": tokens, "cache_prompt": shared}
    if ignore_eos:
        options["ignore_eos"] = True
    done = len(path.read_text().splitlines()) // len(drafters) if path.exists() else 0
    tasks = read_tasks(prompts)
    start = perf_counter()
    with path.open("a") as file:
        for turn in range(done, rounds * len(tasks)):
            if perf_counter() - start > seconds:
                return
            task, prompt = tasks[turn % len(tasks)]
            first = turn % len(drafters)
            lines = []
            for name in drafters[first:] + drafters[:first]:
                drafter, _, length = name.partition("@")
                own = {"num_assistant_tokens": int(length)} if length else {}
                stats = pipelines[drafter].generate(prompt, **options, **own).stats
                line = {"turn": turn, "task": task, "drafter": name}
                line["seconds"] = stats.seconds - stats.time_to_first_token
                line["tokens"] = stats.generated_tokens - 1
                line["passes"] = stats.main_passes - 1
                line["drafted"], line["accepted"] = stats.drafted, stats.accepted
                lines.append(json.dumps(line))
            file.write("\n".join(lines) + "\n")
            file.flush()


def report(path):
    """Print ratios of speed to plain decoding, and tokens per pass, by task and drafter."""
    turns = defaultdict(dict)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        turns[line["task"], line["turn"]][line["drafter"]] = line
    tasks = dict.fromkeys(task for task, _ in turns)
    names = list(next(iter(turns.values())))
    base = [name for name in (PLAIN, "prompt-lookup", "model") if name in names]
    columns = [f"{name} / {other}" for other in base for name in sorted(names) if name != other]
    head("task", "prompts", *columns, "tokens per pass, accepted")
    for task in tasks:
        rows = [turn for (other, _), turn in turns.items() if other == task]
        rows = [turn for turn in rows if all(line["passes"] for line in turn.values())]
        cells = []
        for other in base:
            for name in sorted(names):
                if name != other:
                    ratios = [speed(turn[name]) / speed(turn[other]) for turn in rows]
                    cells.append(interval(ratios))
        passes = [f"{name} {tokens_per_pass(rows, name):.2f}" for name in sorted(names)]
        shares = {name: accepted(rows, name) for name in sorted(names)}
        passes += [f"{name} {share:.0%}" for name, share in shares.items() if share is not None]
        row(task, len(rows), *cells, ", ".join(passes))


def speed(line):
    return line["tokens"] / line["seconds"]


def tokens_per_pass(rows, name):
    return sum(row[name]["tokens"] for row in rows) / sum(row[name]["passes"] for row in rows)


def accepted(rows, name):
    """Of all candidates; none where results of before the count are among them."""
    drafted = sum(row[name].get("drafted", 0) for row in rows)
    return sum(row[name].get("accepted", 0) for row in rows) / drafted if drafted else None


@click.command()
@click.argument("results", type=PATH)
@pair_options
@several("--drafters", str, (PLAIN, "prompt-lookup", "suffix"), says="In turns.")
@click.option("--prompts", default="code", help="code, quoting, or a .jsonl file. [code]")
@click.option("--tokens", default=96, show_default=True, help="Of each output, at most.")
@click.option("--rounds", default=1, show_default=True, help="Turns of each prompt.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the end of an output.")
@click.option("--shared", is_flag=True, help="Look into earlier outputs.")
@click.option("--seconds", default=0.0, help="Measure so long first.")
def drafter_speed(results, **measured):
    """Measure drafters against plain decoding, by task, in turns."""
    if measured["seconds"]:
        measure(results, **measured)
    report(results)
