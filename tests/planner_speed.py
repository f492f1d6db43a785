"""The default draft length against the best constant one, plain decoding and openvino.genai.

    python -m tests.planner_speed RESULTS.jsonl --main MAIN --draft DRAFT --seconds 200
    python -m tests.planner_speed RESULTS.jsonl                 # the ratios of what was measured

Each prompt is continued by every method before the next one, beginning with another each time;
`plain` runs twice, so that its own ratio says what noise does. Runs add to the results: a long
measurement may be made in pieces, each in a fresh process with the cost curve that the first kept.
With --first-process each method of each turn has a process of its own and an empty cache folder,
and what is measured are the first generations of such a process.
Figures are tokens per second after the first token; ratios are medians over paired generations,
with bootstrap intervals of 95 %. The best constant length is chosen on the one half of the turns
and measured on the other, and the reverse; so is openvino.genai's.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.concurrency import Interval
from ov_specdec.bench.genai import with_draft
from ov_specdec.bench.own import PipelineRunner
from ov_specdec.bench.prompts import CODE, encode_prompts, read_prompts
from ov_specdec.bench.setup import Setup
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.text.tokenizer import load_tokenizer

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
        print(f"turn {number}, {spent:.0f} of {seconds:.0f} s", file=sys.stderr)
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


def interval(ratios):
    """The median, and a bootstrap interval of it."""
    found = Interval.of(ratios)
    return f"{found.median:.3f} ({found.low:.3f} to {found.high:.3f}), {len(ratios)} pairs"


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
        print(f"{name:12} / plain: {interval(pairs(turns, name, 'plain'))}")
    for family in ("constant", "genai"):
        family = [name for name in names if name.startswith(family)]
        if family and len(turns) > 1:
            ratios, chosen = pairs_with_best(turns, "default", family)
            print(f"default / best of {' and '.join(chosen)}: {interval(ratios)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--main", type=Path, default=embedded_folder("main"))
    parser.add_argument("--draft", type=Path, default=embedded_folder("draft"))
    parser.add_argument("--drafter", default="model")
    parser.add_argument("--prompts", type=Path, help="file of prompts [the benchmark's code]")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--lengths", type=int, nargs="*", default=[2, 3, 4, 6, 8, 12])
    parser.add_argument("--genai", type=int, nargs="*", default=[], help="its draft lengths")
    parser.add_argument("--fixed-sizes", choices=["auto", "none"], default="auto")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--warm", action="store_true", help="run each method once before")
    parser.add_argument("--first-process", action="store_true")
    arguments = parser.parse_args()
    names = [*own_options(arguments), *(f"genai-{n}" for n in arguments.genai)]
    if arguments.seconds:
        _, first = read(arguments.results)
        if arguments.first_process:
            groups = until(arguments.seconds, -(-first // FIRST_GENERATIONS))
            lines = measure_first_processes(arguments, names, groups)
        else:
            lines = measure(arguments, names, until(arguments.seconds, first))
        with arguments.results.open("a") as file:
            for line in lines:
                file.write(json.dumps(line) + "\n")
                file.flush()
    turns, _ = read(arguments.results)
    report(list(turns.values()))


if __name__ == "__main__":
    main()
