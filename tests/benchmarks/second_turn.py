"""What a kept KV cache spares a second turn of a conversation."""

from collections.abc import Iterator, Sequence
from functools import partial

import click

from ov_specdec import SpeculativePipeline
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options
from tests.benchmarks.record import Row
from tests.benchmarks.tables import quartiles, table
from tests.benchmarks.texts import long_text

ANSWER, QUESTION = 16, 20
"""Tokens of the first answer, and of the question that follows."""


def first_token(pipeline: SpeculativePipeline, text: list[int], first: int) -> Row:
    """Milliseconds to the first token of a second turn: on caches of the first, and on empty ones.

    first: tokens of the first prompt.
    """
    prompt = text[:first]
    answer = pipeline.generate(prompt, max_new_tokens=ANSWER, ignore_eos=True).token_ids
    second = [*prompt, *answer, *text[first : first + QUESTION]]
    kept = pipeline.generate(second, max_new_tokens=1).stats
    fresh = pipeline.generate(second, max_new_tokens=1, cache_prompt=False).stats
    if kept.cached_tokens < first + ANSWER - 1 or fresh.cached_tokens:
        raise click.ClickException(f"{kept.cached_tokens}, {fresh.cached_tokens} tokens cached")
    times = 1000 * kept.time_to_first_token, 1000 * fresh.time_to_first_token
    return {"kept (ms)": times[0], "fresh (ms)": times[1], "ratio": times[0] / times[1]}


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """One line: medians over rounds."""
    names = ("kept (ms)", "fresh (ms)", "ratio")
    yield table(rows, ["first"], {name: quartiles(name, ".3g") for name in names})


@click.command()
@model_options
@click.option("--rounds", default=20, show_default=True, help="After one to warm up.")
@click.option("--first", default=484, show_default=True, help="Tokens of the first prompt.")
@measures
def second_turn(models: Models, rounds: int, first: int) -> Measurements:
    """Measure what a kept KV cache spares the second turn of a conversation."""
    with models.pipeline() as pipeline:
        text = pipeline.tokenizer.encode(long_text())
        first_token(pipeline, text, first)
        for round_ in range(1, rounds + 1):
            own = text[37 * round_ :]
            yield {"first": first, "round": round_}, partial(first_token, pipeline, own, first)
