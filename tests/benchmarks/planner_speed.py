"""The default draft length against the best constant one, plain decoding and openvino.genai.

    python -m tests.benchmarks planner-speed RESULTS.jsonl --main MAIN --draft DRAFT --seconds 200
    python -m tests.benchmarks planner-speed RESULTS.jsonl

Each prompt is continued by every method before the next one, beginning with another each time;
`plain` runs twice, so that its own ratio says what noise does. Runs with --seconds add to the
results, all of which are shown: a long measurement may be made in pieces, each in a fresh process
with the cost curve that the first kept.
With --first-process each method of each turn has a process of its own and an empty cache folder,
and what is measured are the first generations of such a process.
Figures are tokens per second after the first token; ratios are medians over paired generations,
with bootstrap intervals of 95 %. The best constant length is chosen on the one half of the turns
and measured on the other, and the reverse; so is openvino.genai's.
"""

import json
import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from types import SimpleNamespace

import click

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.prompts import CODE, read_prompts
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.text.tokenizer import load_tokenizer
from tests.benchmarks.figures import interval
from tests.benchmarks.options import PATH, pair_options, several
from tests.benchmarks.peers.frameworks.genai import with_draft
from tests.benchmarks.peers.own import PipelineRunner
from tests.benchmarks.peers.prompts import encode_prompts
from tests.benchmarks.peers.setup import Setup

FIRST_GENERATIONS = 3
"""Generations of a new process that are measured, each of another prompt."""


def own_options(arguments):
    """By the name of a method of this project, what it generates with."""
    options = {"temperature": arguments.temperature} if arguments.temperature else {}
    constant = {f"constant-{n}": {**options, "num_assistant_tokens": n} for n in arguments.lengths}
    plain = {name: {**options, "num_assistant_tokens": 0} for name in ("plain", "plain again")}
    return {**plain, "default": options, **constant}


def load(arguments, names, scratch):
    """By the name of a method, what continues a prompt with it."""
    draft = {} if arguments.drafter == "prompt-lookup" else {"draft": arguments.draft}
    pipeline = SpeculativePipeline(
        arguments.main, drafter=arguments.drafter, fixed_sizes=arguments.fixed_sizes, **draft
    )
    runners = {name: PipelineRunner(pipeline, o) for name, o in own_options(arguments).items()}
    setup = Setup(str(arguments.main), str(arguments.draft), scratch=scratch)
    peers = {f"genai-{n}": n for n in arguments.genai}
    for name in peers.keys() & set(names):
        runners[name] = with_draft(setup, peers[name])
    return {name: runners[name] for name in names}


def measure(arguments, names, turns):
    """Yields a line per generation."""
    texts = CODE if arguments.prompts is None else read_prompts(arguments.prompts)
    prompts = encode_prompts(load_tokenizer(arguments.main), texts, None)
    with TemporaryDirectory() as scratch:
        runners = load(arguments, names, scratch)
        if arguments.warm:
            for runner in runners.values():
                runner.run(prompts[-1], 24)
        for turn in turns:
            place = turn % len(names)
            for name in names[place:] + names[:place]:
                result = runners[name].run(prompts[turn % len(prompts)], arguments.tokens)
                yield {
                    "turn": turn,
                    "method": name,
                    "tokens/s": 1.0 / result.time_per_output_token,
                    "acceptance": result.acceptance_rate,
                    "tokens/pass": result.tokens_per_main_pass,
                    "main": result.main_seconds,
                    "draft": result.draft_seconds,
                    "seconds": result.seconds - result.first_token_seconds,
                }


def measure_first_processes(arguments, names, groups):
    """The same with a new process and an empty cache folder per method, a few turns in each."""
    for group in groups:
        turns = range(group * FIRST_GENERATIONS, (group + 1) * FIRST_GENERATIONS)
        place = group % len(names)
        for name in names[place:] + names[:place]:
            with (
                TemporaryDirectory() as folder,
                ProcessPoolExecutor(
                    mp_context=get_context("spawn"),
                    initializer=keep_caches_in,
                    initargs=(folder,),
                ) as process,
            ):
                yield from process.submit(lines_of, arguments, [name], turns).result()


def keep_caches_in(folder):
    """The user's cache folder, for this process alone."""
    os.environ["XDG_CACHE_HOME"] = folder


def lines_of(*measured):
    """What a process can give back."""
    return list(measure(*measured))


def until(seconds, number):
    """Yields numbers until the time is up."""
    start = perf_counter()
    while (spent := perf_counter() - start) < seconds:
        click.echo(f"turn {number}, {spent:.0f} of {seconds:.0f} s", err=True)
        yield number
        number += 1


def pairs(turns, one, other):
    """Ratios of speed of two methods, of generations of the same turn."""
    return [turn[one] / turn[other] for turn in turns if one in turn and other in turn]


def pairs_with_best(turns, one, others):
    """The same with the best of others, chosen on the other half of the turns."""
    ratios, chosen = [], []
    for half in range(2):
        choosing, measured = turns[half::2], turns[1 - half :: 2]
        chosen.append(max(others, key=lambda name: median(t[name] for t in choosing if name in t)))
        ratios += pairs(measured, one, chosen[-1])
    return ratios, chosen


def read(file):
    """By turn, the speed of each method; and the number of the next turn."""
    turns = defaultdict(dict)
    if file.exists():
        for line in map(json.loads, file.read_text().splitlines()):
            turns[line["turn"]][line["method"]] = line["tokens/s"]
    return turns, max(turns, default=-1) + 1


def report(turns):
    names = list(dict.fromkeys(name for turn in turns for name in turn))
    for name in names:
        click.echo(f"{name:12} / plain: {interval(pairs(turns, name, 'plain'))}")
    for family in ("constant", "genai"):
        family = [name for name in names if name.startswith(family)]
        if family and len(turns) > 1:
            ratios, chosen = pairs_with_best(turns, "default", family)
            click.echo(f"default / best of {' and '.join(chosen)}: {interval(ratios)}")


@click.command()
@click.argument("results", type=PATH)
@pair_options
@click.option("--drafter", default="model", show_default=True, help="Or prompt-lookup.")
@click.option("--prompts", type=PATH, help="File of prompts. [the benchmark's code]")
@click.option("--tokens", default=96, show_default=True, help="Of each output.")
@click.option("--temperature", default=0.0, help="Above 0, tokens are drawn.")
@several("--lengths", int, (2, 3, 4, 6, 8, 12), says="Constant draft lengths.")
@several("--genai", int, (), says="Draft lengths of openvino.genai.")
@click.option("--fixed-sizes", type=click.Choice(["auto", "none"]), default="auto")
@click.option("--seconds", default=0.0, help="Measure so long first.")
@click.option("--warm", is_flag=True, help="Run each method once before.")
@click.option("--first-process", is_flag=True, help="A new process for each method and turn.")
def planner_speed(results, main, draft, seconds, first_process, **options):
    """Measure the default draft length against constant ones and openvino.genai."""
    pair = {"main": main or embedded_folder("main"), "draft": draft or embedded_folder("draft")}
    arguments = SimpleNamespace(**{name: Path(path) for name, path in pair.items()}, **options)
    names = [*own_options(arguments), *(f"genai-{n}" for n in arguments.genai)]
    if seconds:
        _, first = read(results)
        if first_process:
            groups = until(seconds, -(-first // FIRST_GENERATIONS))
            lines = measure_first_processes(arguments, names, groups)
        else:
            lines = measure(arguments, names, until(seconds, first))
        with results.open("a") as file:
            for line in lines:
                file.write(json.dumps(line) + "\n")
                file.flush()
    turns, _ = read(results)
    report(list(turns.values()))
