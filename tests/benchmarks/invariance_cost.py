"""What batch invariance costs: the same texts with it and without, in turns.

Both quantize keys by token. Speeds are of what follows the first token.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Literal

import click

from ov_specdec import SpeculativePipeline
from ov_specdec.cli.values import parse_sizes
from ov_specdec.loading.static_shapes import WantedShapes
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options, several
from tests.benchmarks.record import Key, Row
from tests.benchmarks.tables import across, quartiles, table
from tests.benchmarks.texts import long_text

TOGETHER = 8
NEW_TOKENS = 48

Time = Callable[[SpeculativePipeline, list[list[int]]], float]
"""Seconds of a token."""


def alone(length: Literal["auto"] | int) -> Time:
    """Of a text alone, after its first token. length: of drafts."""

    def seconds(pipeline: SpeculativePipeline, prompts: list[list[int]]) -> float:
        result = pipeline.generate(
            prompts[0],
            max_new_tokens=NEW_TOKENS,
            ignore_eos=True,
            num_assistant_tokens=length,
        )
        return result.stats.time_per_output_token

    return seconds


def together(pipeline: SpeculativePipeline, prompts: list[list[int]]) -> float:
    """Of plain texts that share passes, on prompts that are cached."""
    run = partial(pipeline.generate_batch, prompts, ignore_eos=True, num_assistant_tokens=0)
    run(max_new_tokens=1)
    start = perf_counter()
    run(max_new_tokens=NEW_TOKENS)
    return (perf_counter() - start) / (NEW_TOKENS * len(prompts))


CELLS: dict[str, tuple[int, Time]] = {
    "speculative": (1, alone("auto")),
    "plain alone": (1, alone(0)),
    f"plain {TOGETHER} together": (TOGETHER, together),
}
"""Sequences that may share passes, and what is timed."""


def with_over_without(
    pipelines: list[SpeculativePipeline],
    seconds: Time,
    text: list[int],
    cached: int,
    round_: int,
) -> Row:
    """Speed with it over speed without it: the two take turns at being first."""
    starts = range(31 * round_, 31 * round_ + TOGETHER)
    prompts = [text[start : start + cached] for start in starts]
    order = pipelines if round_ % 2 else pipelines[::-1]
    times = {id(pipeline): seconds(pipeline, prompts) for pipeline in order}
    with_it, without = (times[id(pipeline)] for pipeline in pipelines)
    return {"ratio": without / with_it}


def costs(
    models: Models,
    rounds: int,
    cached: Sequence[int],
    static_shapes: WantedShapes = "none",
    ways: Sequence[str] = tuple(CELLS),
) -> Measurements:
    """The ratios of a pair, by way and cached tokens: rounds of them, after one to warm up."""
    for way in ways:
        batch, seconds = CELLS[way]
        pipeline_of = partial(models.pipeline, max_batch_size=batch, static_shapes=static_shapes)
        with ExitStack() as stack:
            pipelines = [
                stack.enter_context(pipeline_of(batch_invariant=on)) for on in ("auto", False)
            ]
            for pipeline in pipelines:
                pipeline.prepare()
            text = pipelines[0].tokenizer.encode(long_text())
            click.echo(f"{way}: {pipelines[0].check_batch_invariant()}", err=True)
            for length in cached:
                if length + NEW_TOKENS <= pipelines[0].main.runner.max_length:
                    measure = partial(with_over_without, pipelines, seconds, text, length)
                    measure(0)
                    for round_ in range(1, rounds + 1):
                        key: Key = {"way": way, "cached": length, "turn": round_}
                        yield key, partial(measure, round_)


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each number of cached tokens, medians over rounds."""
    yield table(rows, ["cached"], across(rows, "way", quartiles("ratio")))


@click.command()
@model_options
@click.option("--rounds", default=15, show_default=True, help="After one to warm up.")
@several("--cached", int, (200, 500, 2000), says="Tokens of prompts.")
@click.option("--static-shapes", default="none", show_default=True)
@several("--ways", str, tuple(CELLS), says="What is timed.", among=CELLS)
@measures
def invariance_cost(
    models: Models, rounds: int, cached: tuple[int, ...], static_shapes: str, ways: tuple[str, ...]
) -> Measurements:
    """Measure the speed with batch invariance over that without it."""
    yield from costs(models, rounds, cached, parse_sizes(static_shapes), ways)
