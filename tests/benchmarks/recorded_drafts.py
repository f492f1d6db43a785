"""The planner on drafts of real models, without a clock: how near it comes to the best length.

    python -m tests.benchmarks recorded-drafts DRAFTS.json --record
    python -m tests.benchmarks recorded-drafts DRAFTS.json

`--record` continues the benchmark's prompts greedily, drafts at each place of each text, and keeps
how many candidates agree with the text, how sure the draft model was, and the cost curve. The other
call replays them: on the curve that was kept, and on that of a main model of 1 B parameters.
Ratios are of speed, by text, to the constant length that is best over all texts.
"""

import json
from random import Random
from statistics import mean, median

import click

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.prompts import CODE
from ov_specdec.cache.sequence import CachedSequence, alone
from ov_specdec.costs import CostCurve, LiveCurve, PassCurve
from ov_specdec.costs.kept import read_curve, write_curve
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.sampling.samplers import Chosen
from ov_specdec.speculation.acceptance import Common
from ov_specdec.speculation.adaptive import AdaptiveLength
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.speculation.drafters.model import confidence
from ov_specdec.stats import RoundStats
from tests.benchmarks.options import PATH, pair_options
from tests.benchmarks.peers.prompts import encode_prompts
from tests.rounds import step_of

LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15)
NUM_CANDIDATES, NUM_TOKENS = 15, 200
NOISE = 0.1
"""Relative deviation of each pass."""

LARGE = CostCurve(
    PassCurve({16: {1: 59.0, 2: 79.0, 3: 92.0, 4: 120.0, 6: 167.0, 8: 200.0, 16: 325.0}}, 8.0),
    PassCurve({16: {1: 0.8, 2: 1.0}}, 0.5, 0.3),
)
"""Milliseconds of a main model of 1 B parameters with the embedded draft, two cores with AVX2."""


def record(main, draft, file):
    pipeline = SpeculativePipeline(main=main, draft=draft)
    texts = []
    for prompt in encode_prompts(pipeline.tokenizer, CODE, None):
        options = {"max_new_tokens": NUM_TOKENS, "ignore_eos": True, "num_assistant_tokens": 0}
        text = [*prompt, *pipeline.generate(prompt, **options).token_ids]
        cache, places = CachedSequence(pipeline.draft.runner), []
        for place in range(len(prompt) + 1, len(text) - NUM_CANDIDATES):
            candidates, confidences = [], []
            while len(candidates) < NUM_CANDIDATES:
                row = alone(cache.advance(text[:place], candidates, num_rows=1)).logits[0]
                candidates.append(int(row.argmax()))
                confidences.append(confidence(row, Chosen(candidates[-1])))
            pairs = enumerate(zip(candidates, text[place:], strict=False))
            agree = next((n for n, (one, other) in pairs if one != other), NUM_CANDIDATES)
            places.append((agree, confidences))
        cache.drop()
        texts.append({"prompt": len(prompt), "places": places})
    file.write_text(json.dumps(texts))
    write_curve(file.with_suffix(".curve.json"), pipeline.prepare())


def speed(policy, text, curve, live, generator):
    """Tokens per second of one text."""
    prompt, places = text["prompt"], text["places"]
    policy.update(RoundStats(0, 0, 1, 0, 1.0, 0, 1.0, prompt, reason="prefill"))
    place, last, complete, spent = 0, prompt, False, 0.0
    while place < len(places):
        agree, confidences = places[place]
        plan, drafted = policy.plan("model"), 0
        while drafted < plan.length:
            drafted += 1
            if plan.wants_confidence and plan.ends_after(confidences[:drafted]):
                break
        accepted, size = min(agree, drafted), policy.pass_size(drafted + 1)
        start, step, again = curve.drafting(prompt + place)
        drafting = start + drafted * step + complete * again if drafted else 0.0
        passing = curve.main.at(size, prompt + place) + (size != last) * curve.main.change
        spent += drafting + passing
        seen = [max(generator.gauss(1.0, NOISE), 0.5) * part for part in (drafting, passing)]
        stats = RoundStats(
            num_drafted=drafted,
            num_accepted=accepted,
            num_generated=accepted + 1,
            draft_seconds=seen[0],
            verify_seconds=seen[1],
            rollback_seconds=0.0,
            seconds=sum(seen),
            pass_tokens=size,
            source="model",
            planned=plan.length,
            reason=plan.reason,
            confidences=tuple(confidences[:drafted]) if plan.wants_confidence else (),
            cached_tokens=prompt + place,
            draft_pass_tokens=drafted,
        )
        policy.update(stats)
        live.learn(step_of(stats))
        last, complete, place = size, 0 < accepted == drafted, place + accepted + 1
    return place / spent


def replay(texts, curve, seeds=8):
    def constant(n):
        return [speed(ConstantLength(n), t, curve, LiveCurve(curve), Random(0)) for t in texts]

    speeds = {n: constant(n) for n in LENGTHS}
    best = max(speeds, key=lambda n: mean(a / b for a, b in zip(speeds[n], speeds[0], strict=True)))
    ratios, first = [], []
    for seed in range(seeds):
        generator, live, common = Random(seed), LiveCurve(curve), Common()
        order = generator.sample(range(len(texts)), len(texts))
        policies = (AdaptiveLength(("model",), live, common) for _ in order)
        own = [
            speed(policy, texts[i], curve, live, generator) / speeds[best][i]
            for policy, i in zip(policies, order, strict=True)
        ]
        ratios += own
        first.append(own[0])
    click.echo(
        f"of the best constant length ({best}): median {median(ratios):.3f}, mean "
        f"{mean(ratios):.3f}, least {min(ratios):.3f}; first text of a process {mean(first):.3f}"
    )


@click.command()
@click.argument("drafts", type=PATH)
@click.option("--record", "is_new", is_flag=True, help="Record the drafts of a pair first.")
@pair_options
def recorded_drafts(drafts, is_new, main, draft):
    """Compare the planner with constant lengths on DRAFTS, recorded ones."""
    if is_new:
        record(main or embedded_folder("main"), draft or embedded_folder("draft"), drafts)
    texts = json.loads(drafts.read_text())
    for curve in (read_curve(drafts.with_suffix(".curve.json")), LARGE):
        replay(texts, curve)
