"""How often a draft chooses a seed's own token: `python -m tests.benchmarks seeded-acceptance`.

Texts of the embedded main model with a seed, and at each place the draft model's choice with the
same noise. Beside it how often a candidate would be accepted that was drawn with other noise and
verified alone: the overlap of both distributions, which is the most that any way can reach.
"""

from statistics import mean

import click
import numpy as np

from ov_specdec import GenerationOptions, SpeculativePipeline
from ov_specdec.cache.sequence import CachedSequence, alone
from ov_specdec.sampling.from_options import make_samplers, make_warper
from tests.benchmarks.figures import head, row
from tests.prompts import PROMPTS

TEMPERATURES = (0.6, 0.8, 1.0)


def rows_of(runner, tokens, size):
    """The logits that score the last `size` tokens, [size, vocab]."""
    cache = CachedSequence(runner, object())
    rows = alone(cache.advance(tokens[:-1], num_rows=size)).logits.copy()
    cache.drop()
    return rows


def shares(pipeline, prompt, options, size):
    """Of one text: where the draft model's choice is the text's, [size], and the overlaps."""
    ids = pipeline.tokenizer.encode(prompt)
    output = pipeline.generate(prompt, max_new_tokens=size, ignore_eos=True, **options).token_ids
    tokens = [*ids, *output]
    main, draft = (rows_of(model.runner, tokens, size) for model in (pipeline.main, pipeline.draft))
    chosen = GenerationOptions(**options)
    sampler = make_samplers(chosen, prompt_length=len(ids), eos_token_ids=frozenset()).draft
    warper = make_warper(chosen)
    same, overlaps = [], []
    for place, (main_row, draft_row) in enumerate(zip(main, draft, strict=True), start=len(ids)):
        same.append(sampler.sample(tokens[:place], draft_row).token == tokens[place])
        overlaps.append(np.minimum(warper(main_row).probs, warper(draft_row).probs).sum())
    return same, overlaps


@click.command()
@click.option("--size", default=96, show_default=True, help="Tokens of each text.")
@click.option("--seeds", default=4, show_default=True, help="Texts of each prompt.")
def seeded_acceptance(size: int, seeds: int) -> None:
    """Count candidates that are accepted, with a seed and drawn one by one."""
    head("temperature", "with a seed", "drawn, one by one")
    with SpeculativePipeline(precision="exact", profile="none") as pipeline:
        for temperature in TEMPERATURES:
            same, overlaps = [], []
            for prompt in PROMPTS:
                for seed in range(seeds):
                    options = {"temperature": temperature, "seed": seed}
                    found = shares(pipeline, prompt, options, size)
                    same += found[0]
                    overlaps += found[1]
            row(temperature, f"{mean(same):.3f}", f"{np.mean(overlaps):.3f}")
