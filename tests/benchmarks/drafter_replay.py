"""Drafters without a model, on recorded outputs: no clock, so every run gives the same figures.

    python -m tests.benchmarks drafter-replay OUTPUTS.jsonl --main MAIN --prompts PROMPTS.jsonl
    python -m tests.benchmarks drafter-replay OUTPUTS.jsonl --curve CURVE.json
    python -m tests.benchmarks drafter-replay OUTPUTS.jsonl --length 15

With --prompts outputs are recorded: those of plain greedy decoding. A drafter then proposes, the
planner chooses the length, and what agrees with the recorded output is accepted, as it would be in
greedy decoding. A pass takes what the cost curve says, which a pipeline keeps in the user's cache
folder (`costs/`).
The table has tokens per pass, and the speed over that of plain decoding.

With --length every round has so many candidates, and the last column is of a drafter that knows the
output, and takes of all places where the last token stood the one that agrees with it longest: no
rule that chooses among matches can have more.
"""

import json
from collections import defaultdict
from functools import partial
from itertools import takewhile

import click

from ov_specdec import SpeculativePipeline
from ov_specdec.costs import NOMINAL, FixedCurve
from ov_specdec.costs.kept import read_curve
from ov_specdec.speculation.acceptance import Common
from ov_specdec.speculation.adaptive import AdaptiveLength
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.speculation.drafters import PromptLookup, SuffixDrafter
from ov_specdec.speculation.earlier_outputs import EarlierOutputs
from ov_specdec.stats import RoundStats
from tests.benchmarks.figures import head, row
from tests.benchmarks.options import MAIN_OPTION, PATH
from tests.benchmarks.texts import read_tasks
from tests.running import propose


def record(path, main, prompts, num_tokens):
    """Append what plain decoding makes of each prompt, as ids."""
    options = {"max_new_tokens": num_tokens, "cache_prompt": False}
    if prompts in ("code", "quoting"):
        options["ignore_eos"] = True
    with SpeculativePipeline(main, drafter="none") as pipeline, path.open("a") as file:
        for task, prompt in read_tasks(prompts):
            rendered = pipeline._generator.encode(prompt, pipeline.complete_options())
            output = pipeline.generate(rendered, **options).token_ids
            line = {"task": task, "prompt": rendered, "output": output}
            file.write(json.dumps(line) + "\n")


def replay(line, drafter, policy, curve):
    """Passes after the prefill, and the seconds of the curve that they take."""
    start, tokens = len(line["prompt"]) + 1, line["prompt"] + line["output"]
    policy.update(RoundStats(0, 0, 1, 0, 0, 0, 0, start - 1, reason="prefill"))
    length, last_size, passes, seconds = start, start - 1, 0, 0.0
    while length < len(tokens):
        room = len(tokens) - length - 1

        def plan(ask, room=room):
            return policy.plan(ask.source, ask.confidence).within(room)

        proposal = propose(drafter, tokens[:length], plan)
        candidates = proposal.draft.tokens
        pairs = zip(candidates, tokens[length:], strict=False)
        accepted = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        size = policy.pass_size(1 + len(candidates))
        spent = curve.main.at(size, length) + curve.main.change * (size != last_size)
        declined = proposal.declined
        stats = RoundStats(
            *(len(candidates), accepted, accepted + 1, 0.0, spent, 0.0, spent),
            pass_tokens=size,
            source=proposal.source,
            planned=proposal.plan.length,
            reason=proposal.plan.reason,
            confidences=proposal.confidences,
            match_confidence=proposal.match_confidence,
            cached_tokens=length - 1,
            declined=declined.judged(tokens[length]) if declined else None,
        )
        policy.update(stats)
        length, last_size = length + accepted + 1, size
        passes, seconds = passes + 1, seconds + spent
    return passes, seconds


def read_outputs(path):
    """What was recorded, by task."""
    by_task = defaultdict(list)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if len(line["output"]) > 1:
            by_task[line["task"]].append(line)
    return by_task


def foresight(line, limit):
    """Passes after the prefill with the best match in each round."""
    tokens, length, passes = line["prompt"] + line["output"], len(line["prompt"]) + 1, 0
    while length < len(tokens):
        places = (p for p in range(1, length) if tokens[p - 1] == tokens[length - 1])
        room = min(limit, len(tokens) - length - 1)
        agreeing = (
            next((n for n in range(room) if tokens[place + n] != tokens[length + n]), room)
            for place in places
        )
        length, passes = length + 1 + max(agreeing, default=0), passes + 1
    return passes


def constant_table(by_task, limit):
    """Print tokens per pass with so many candidates in each round."""
    makers = {"prompt lookup": PromptLookup, "suffix": SuffixDrafter}
    head("task", *makers, "best match")
    for task, lines in by_task.items():
        passes = [
            sum(replay(line, make(), ConstantLength(limit), NOMINAL)[0] for line in lines)
            for make in makers.values()
        ]
        passes.append(sum(foresight(line, limit) for line in lines))
        tokens = sum(len(line["output"]) - 1 for line in lines)
        row(task, *(f"{tokens / n:.2f} ({passes[0] / n:.2f})" for n in passes))


def table(by_task, curve):
    """Print a row for each task."""
    names = ("prompt lookup", "suffix", "suffix, with earlier outputs")
    head("task", "prompts", *names)
    results = {name: replay_all(by_task, name, curve) for name in names}
    for task, lines in by_task.items():
        cells = [
            f"{tokens:.2f}, {ratio:.2f}" for tokens, ratio in (results[n][task] for n in names)
        ]
        row(task, len(lines), *cells)


def replay_all(by_task, name, curve):
    """Tokens per pass and speed over plain by task; a drafter learns from task to task."""
    earlier, common, results = EarlierOutputs(), Common(), {}
    makers = {
        "prompt lookup": PromptLookup,
        "suffix": SuffixDrafter,
        "suffix, with earlier outputs": partial(SuffixDrafter, (), lambda: earlier.indexes(None)),
    }
    for task, lines in by_task.items():
        tokens = passes = seconds = plain = 0.0
        for line in lines:
            drafter = makers[name]()
            policy = AdaptiveLength(drafter.sources, FixedCurve(curve), common)
            more, spent = replay(line, drafter, policy, curve)
            passes, seconds = passes + more, seconds + spent
            tokens += len(line["output"]) - 1
            start = len(line["prompt"]) + 1
            plain += sum(curve.main.at(1, start + i) for i in range(len(line["output"]) - 1))
            earlier.remember(None, line["prompt"] + line["output"], len(line["prompt"]))
            earlier.take_in()
        results[task] = tokens / passes, plain / seconds
    return results


@click.command()
@click.argument("outputs", type=PATH)
@MAIN_OPTION
@click.option("--prompts", help="Record what follows these: code, quoting, or a .jsonl file.")
@click.option("--tokens", default=128, show_default=True, help="Of each output, at most.")
@click.option("--length", type=int, help="Candidates in each round. [the planner's]")
@click.option("--curve", type=PATH, help="Cost curve of the model. [a nominal one]")
def drafter_replay(outputs, main, prompts, tokens, length, curve):
    """Replay drafters that need no model on OUTPUTS, recorded ones."""
    if prompts:
        record(outputs, main, prompts, tokens)
    by_task = read_outputs(outputs)
    if length is not None:
        constant_table(by_task, length)
    else:
        table(by_task, NOMINAL if curve is None else read_curve(curve))
