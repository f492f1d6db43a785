"""How often a draft chooses the main model's token, in each place of the main model's texts.

At a temperature, texts have a seed, and the draft model chooses with the same noise. Beside it is
how often a token would be accepted that was drawn with other noise and verified alone: the overlap
of both distributions, which is the most that any way can reach. The draft is told so many tokens of
the prompt, the latest ones; the text after them it sees whole.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import click
import numpy as np
from numpy.typing import NDArray

from ov_specdec import GenerationOptions, GenerationResult, SpeculativePipeline
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.from_options import make_samplers, make_warper
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options, prompt_options, several
from tests.benchmarks.record import Row
from tests.benchmarks.tables import across, average, table
from tests.benchmarks.texts import Prompts


def rows_of(runner: Runner, tokens: list[int], size: int) -> NDArray[np.float32]:
    """The logits that score the last `size` tokens, [size, vocab]."""
    sequence = CachedSequence(runner, object())
    rows = alone(sequence.advance(tokens[:-1], num_rows=size)).logits.copy()
    sequence.discard()
    return rows


def shares(
    pipeline: SpeculativePipeline,
    prompt: list[int],
    text: Callable[[], GenerationResult],
    options: GenerationOptions,
    told: int,
) -> Row:
    """Shares of a text's tokens. told: how much of the prompt the draft is told."""
    output = text().token_ids
    tokens, size = [*prompt, *output], len(output)
    sampler = make_samplers(options, prompt_length=len(prompt), eos_token_ids=frozenset())[1]
    draft = rows_of(pipeline.draft.runner, [*prompt[-told:], *output], size)
    places = range(len(prompt), len(tokens))
    chosen = [sampler.sample(tokens[:n], row).token for n, row in zip(places, draft, strict=True)]
    found = {"agrees": float(np.mean(np.array(chosen) == output))}
    if options.temperature:
        warper, main = make_warper(options), rows_of(pipeline.main.runner, tokens, size)
        pairs = zip(main, draft, strict=True)
        overlaps = [np.minimum(warper(a).probs, warper(b).probs).sum() for a, b in pairs]
        found["overlap"] = float(np.mean(overlaps))
    return found


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each temperature, and a column for each part of the prompt."""
    columns = across(rows, "told", average("agrees", ".3f"))
    yield table(rows, ["temperature"], columns | {"drawn, one by one": average("overlap", ".3f")})


@click.command()
@model_options
@prompt_options("tests")
@several("--temperatures", float, (0.0, 0.6, 0.8, 1.0), says="0 is greedy decoding.")
@several("--told", int, (0,), says="Tokens of the prompt that the draft is told; 0: all it holds.")
@click.option("--size", default=96, show_default=True, help="Tokens of each text.")
@click.option("--rounds", default=4, show_default=True, help="Seeds, where there is a temperature.")
@measures
def agreement(
    models: Models,
    prompts: Prompts,
    temperatures: tuple[float, ...],
    told: tuple[int, ...],
    size: int,
    rounds: int,
) -> Measurements:
    """Count how often a draft chooses the main model's token."""
    run = {"max_new_tokens": size, "ignore_eos": True, "num_assistant_tokens": 0}
    with models.pipeline("model") as pipeline:
        room = pipeline.draft.runner.max_length - size
        for number, (_, prompt) in enumerate(prompts.ids(pipeline.tokenizer)):
            for temperature in temperatures:
                for seed in range(rounds if temperature else 1):
                    drawn = {"temperature": temperature, "seed": seed} if temperature else {}
                    text = cache(partial(pipeline.generate, prompt, **run, **drawn))
                    options = GenerationOptions(**drawn)
                    for part in (part for part in told if part <= room):
                        key = {"prompt": number, "temperature": temperature, "seed": seed}
                        measure = partial(shares, pipeline, prompt, text, options, part or room)
                        yield {**key, "told": part or "all it holds"}, measure
