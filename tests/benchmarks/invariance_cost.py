"""What batch invariance costs: the same texts with it and without, in turns.

`python -m tests.benchmarks invariance-cost` prints a table of docs/exactness.md: medians, with
quartiles, of speed with it over speed without it. Both quantize keys by token.
"""

from collections.abc import Callable
from time import perf_counter

import click

from ov_specdec import SpeculativePipeline
from ov_specdec.loading.devices import describe_machine
from tests.benchmarks.figures import head, quartiles, row
from tests.benchmarks.options import pair_options, several
from tests.benchmarks.texts import long_text

TOGETHER = 8
NEW_TOKENS = 48

Time = Callable[[SpeculativePipeline, list[list[int]]], float]
"""Seconds of a token."""


def alone(length: int | str) -> Time:
    """Of a text alone, after its first token. length: of drafts."""

    def seconds(pipeline: SpeculativePipeline, prompts: list[list[int]]) -> float:
        run = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "num_assistant_tokens": length}
        return pipeline.generate(prompts[0], **run).stats.time_per_output_token

    return seconds


def together(pipeline: SpeculativePipeline, prompts: list[list[int]]) -> float:
    """Of plain texts that share passes, on prompts that are cached."""
    run = {"ignore_eos": True, "num_assistant_tokens": 0}
    pipeline.generate_batch(prompts, **run, max_new_tokens=1)
    start = perf_counter()
    pipeline.generate_batch(prompts, **run, max_new_tokens=NEW_TOKENS)
    return (perf_counter() - start) / (NEW_TOKENS * len(prompts))


CELLS: dict[str, tuple[int, Time]] = {
    "speculative": (1, alone("auto")),
    "plain alone": (1, alone(0)),
    f"plain, {TOGETHER} together": (TOGETHER, together),
}
"""Sequences that may share passes, and what is timed."""


def ratios(
    pipelines: list[SpeculativePipeline],
    seconds: Time,
    text: list[int],
    cached: int,
    rounds: int,
) -> list[float]:
    """Speed with it over speed without it, by round: the two take turns at being first."""
    found = []
    for round_ in range(rounds + 1):
        starts = range(31 * round_, 31 * round_ + TOGETHER)
        prompts = [text[start : start + cached] for start in starts]
        order = pipelines if round_ % 2 else pipelines[::-1]
        times = {id(pipeline): seconds(pipeline, prompts) for pipeline in order}
        with_it, without = (times[id(pipeline)] for pipeline in pipelines)
        found.append(without / with_it)
    return found[1:]


@click.command()
@pair_options
@click.option("--rounds", default=15, show_default=True, help="After one to warm up.")
@several("--cached", int, (200, 500, 2000), says="Tokens of prompts.")
@click.option("--fixed-sizes", default="none", show_default=True)
@click.option("--only", default="", help="Cells whose names hold this text.")
def invariance_cost(
    main: str | None,
    draft: str | None,
    rounds: int,
    cached: tuple[int, ...],
    fixed_sizes: str,
    only: str,
) -> None:
    """Measure the speed with batch invariance over that without it."""
    drafter = {"drafter": "suffix"} if main and not draft else {"draft": draft}
    settings = {**drafter, "profile": "none", "fixed_sizes": fixed_sizes}
    rows: dict[int, list[str]] = {length: [] for length in cached}
    cells = {name: cell for name, cell in CELLS.items() if only in name}
    for name, (batch, seconds) in cells.items():
        pipelines = [
            SpeculativePipeline(main, batch_invariant=on, max_batch_size=batch, **settings)
            for on in ("auto", False)
        ]
        for pipeline in pipelines:
            pipeline.prepare()
        text = pipelines[0].tokenizer.encode(long_text())
        click.echo(f"{name}: {pipelines[0].check_batch_invariant()}", err=True)
        for length in cached:
            if length + NEW_TOKENS <= pipelines[0].main.runner.max_length:
                values = ratios(pipelines, seconds, text, length, rounds)
                rows[length].append(quartiles(values))
                click.echo(f"{name}, {length} cached: {rows[length][-1]}", err=True)
        for pipeline in pipelines:
            pipeline.close()
    click.echo(f"{describe_machine('CPU')}\n")
    head("cached", *cells)
    for length, found in rows.items():
        row(length, *found)
