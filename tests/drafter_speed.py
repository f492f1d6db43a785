"""Drafters against each other and against plain decoding, in turns, by the task of the prompt.

    python -m tests.drafter_speed RESULTS.jsonl --main MAIN --prompts PROMPTS.jsonl --seconds 200
    python -m tests.drafter_speed RESULTS.jsonl                 # the tables of what was measured

One process, one pipeline for each drafter, `none` among them. Each prompt is continued by all of
them before the next one, beginning with another each time. Runs add to the results, and go on after
the prompts that are in there. Speeds are tokens per second after the first token; ratios are
medians over prompts, with bootstrap intervals of 95 %. With --shared, the suffix drafter looks into
earlier outputs of its pipeline too.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from time import perf_counter

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.prompts import PROMPT_SETS
from ov_specdec.speculation.drafters.factory import WITH_DRAFT
from tests.planner_speed import interval

PLAIN = "none"
KEYS = ("accepted", "drafted")


def read_prompts(name):
    """Tasks and prompts, of a set of the benchmark or of a file; the tasks of a file in turns."""
    if name in PROMPT_SETS:
        return [(name, prompt) for prompt in PROMPT_SETS[name]]
    by_task = defaultdict(list)
    for line in Path(name).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        by_task[row.get("task", Path(name).stem)].append(row["prompt"])
    longest = max(map(len, by_task.values()))
    return [
        (task, prompts[i])
        for i in range(longest)
        for task, prompts in by_task.items()
        if i < len(prompts)
    ]


def measure(arguments, path):
    """Append a line per generation, until the time is up or all prompts were continued."""
    pipelines = {}
    for name in arguments.drafters:
        models = {"main": arguments.main}
        if name in WITH_DRAFT:
            models["draft"] = arguments.draft
        pipelines[name] = SpeculativePipeline(**models, drafter=name, fixed_sizes="auto")
        pipelines[name].prepare()
        pipelines[name].generate("def main():\n", max_new_tokens=24, cache_prompt=False)
    options = {"max_new_tokens": arguments.tokens, "cache_prompt": arguments.shared}
    if arguments.ignore_eos:
        options["ignore_eos"] = True
    done = len(path.read_text().splitlines()) // len(pipelines) if path.exists() else 0
    prompts = read_prompts(arguments.prompts)
    start, names = perf_counter(), list(pipelines)
    with path.open("a") as file:
        for turn in range(done, arguments.rounds * len(prompts)):
            if perf_counter() - start > arguments.seconds:
                return
            task, prompt = prompts[turn % len(prompts)]
            first = turn % len(names)
            lines = []
            for name in names[first:] + names[:first]:
                stats = pipelines[name].generate(prompt, **options).stats
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
    print(f"| task | prompts | {' | '.join(columns)} | tokens per pass | accepted |")
    print("|---" * (len(columns) + 4) + "|")
    for task in tasks:
        rows = [turn for (other, _), turn in turns.items() if other == task]
        rows = [row for row in rows if all(line["passes"] for line in row.values())]
        cells = []
        for other in base:
            for name in sorted(names):
                if name != other:
                    ratios = [speed(row[name]) / speed(row[other]) for row in rows]
                    cells.append(interval(ratios))
        passes = [f"{name} {tokens_per_pass(rows, name):.2f}" for name in sorted(names)]
        accepted = [f"{name} {acceptance(rows, name):.0%}" for name in sorted(names)]
        cells += [", ".join(passes), ", ".join(accepted)]
        print(f"| {task} | {len(rows)} | {' | '.join(cells)} |")


def speed(line):
    return line["tokens"] / line["seconds"]


def tokens_per_pass(rows, name):
    return sum(row[name]["tokens"] for row in rows) / sum(row[name]["passes"] for row in rows)


def acceptance(rows, name):
    """Of all candidates; results of before this was noted have none."""
    accepted, drafted = (sum(row[name].get(key, 0) for row in rows) for key in KEYS)
    return accepted / max(drafted, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--main")
    parser.add_argument("--draft")
    parser.add_argument("--drafters", nargs="*", default=[PLAIN, "prompt-lookup", "suffix"])
    parser.add_argument("--prompts", default="code", help="code, quoting, or a .jsonl file")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--shared", action="store_true", help="look into earlier outputs")
    parser.add_argument("--seconds", type=float, default=0.0)
    arguments = parser.parse_args()
    if arguments.seconds:
        measure(arguments, arguments.results)
    report(arguments.results)


if __name__ == "__main__":
    main()
