"""The default draft length against the best constant one and plain decoding, in turns.

    python -m tests.planner_speed RESULTS.jsonl --main MAIN --draft DRAFT --seconds 200
    python -m tests.planner_speed RESULTS.jsonl                 # the ratios of what was measured

One process and one pair of models. Each prompt is continued by every method before the next one,
beginning with another each time; `plain` runs twice, so that its own ratio says what noise does.
Runs add to the results, so that a long measurement may be made in pieces, each in a fresh process.
Figures are tokens per second after the first token; ratios are medians over paired runs, with
bootstrap intervals of 95 %. The best constant length is chosen on the one half of the rounds and
measured on the other, and the reverse.
"""

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path
from statistics import median
from time import perf_counter

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.prompts import CODE, read_prompts

PLAIN = {"num_assistant_tokens": 0}
RESAMPLES = 2000


def methods(lengths, options):
    constant = {f"constant-{n}": {**options, "num_assistant_tokens": n} for n in lengths}
    plain = {name: {**options, **PLAIN} for name in ("plain", "plain again")}
    return {**plain, "default": options, **constant}


def measure(arguments, file):
    """Append a line per generation, until the time is up."""
    pair = {"main": arguments.main, "draft": arguments.draft}
    if arguments.drafter == "prompt-lookup":
        del pair["draft"]
    pipeline = SpeculativePipeline(**pair, drafter=arguments.drafter)
    pipeline.prepare()
    prompts = CODE if arguments.prompts is None else read_prompts(arguments.prompts)
    options = {"max_new_tokens": arguments.tokens, "ignore_eos": True, "cache_prompt": False}
    if arguments.temperature:
        options["temperature"] = arguments.temperature
    ways = methods(arguments.lengths, options)
    names = list(ways)
    if arguments.warm:
        for name in names:
            pipeline.generate("def main():\n", **{**ways[name], "max_new_tokens": 24})
    start, turn = perf_counter(), arguments.first
    while perf_counter() - start < arguments.seconds:
        prompt = prompts[turn % len(prompts)]
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            stats = pipeline.generate(prompt, **ways[name]).stats
            line = {
                "turn": turn,
                "method": name,
                "tokens/s": 1.0 / stats.time_per_output_token,
                "acceptance": stats.acceptance_rate,
                "lengths": [(r["rounds"], r["planned"], r["reason"]) for r in stats.draft_lengths],
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
        turn += 1


def pairs(lines, one, other):
    """Ratios of speed of two methods, of generations of the same turn."""
    return [turn[one] / turn[other] for turn in lines if one in turn and other in turn]


def interval(ratios):
    """The median, and a bootstrap interval of it."""
    generator = random.Random(0)
    medians = sorted(median(generator.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return median(ratios), medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def report(path):
    turns = defaultdict(dict)
    for number, text in enumerate(path.read_text().splitlines()):
        line = json.loads(text)
        turn = turns[line["turn"], number // 1_000_000]
        turn[line["method"]] = line["tokens/s"]
    turns = list(turns.values())
    names = list(turns[0])
    constants = [name for name in names if name.startswith("constant")]
    for name in names:
        ratios = pairs(turns, name, "plain")
        print(f"{name:12} {interval(ratios)[0]:5.2f} times plain, {len(ratios)} runs")
    rows = {"plain again / plain": pairs(turns, "plain again", "plain")}
    rows["default / plain"] = pairs(turns, "default", "plain")
    if constants:
        rows["default / best constant"] = []
        for half in range(2):
            choosing, measured = turns[half::2], turns[1 - half :: 2]
            best = max(constants, key=lambda name: median(t[name] for t in choosing if name in t))
            rows["default / best constant"] += pairs(measured, "default", best)
            print(f"best constant of half {half}: {best}")
    for label, ratios in rows.items():
        value, low, high = interval(ratios)
        print(f"{label:24} {value:.2f} ({low:.2f} to {high:.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--main")
    parser.add_argument("--draft")
    parser.add_argument("--drafter", default="model")
    parser.add_argument("--prompts", type=Path, help="file of prompts [the benchmark's code]")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--lengths", type=int, nargs="*", default=[2, 3, 4, 6, 8, 12])
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--first", type=int, default=0, help="the turn to begin with")
    parser.add_argument("--warm", action="store_true", help="run each method once before")
    arguments = parser.parse_args()
    if arguments.seconds:
        with arguments.results.open("a") as file:
            measure(arguments, file)
    report(arguments.results)


if __name__ == "__main__":
    main()
