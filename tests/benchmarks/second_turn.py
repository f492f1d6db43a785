"""What a kept KV cache spares a second turn: `python -m tests.benchmarks second-turn`.

Prints figures of docs/benchmarks.md.
"""

import click

from ov_specdec import SpeculativePipeline
from tests.benchmarks.figures import quartiles
from tests.benchmarks.options import pair_options
from tests.benchmarks.texts import long_text

FIRST, ANSWER, QUESTION = 484, 16, 20
"""Tokens of the first prompt, of the answer to it, and of the question that follows."""


def times_to_first_token(pipeline: SpeculativePipeline, text: list[int]) -> tuple[float, float]:
    """Seconds to the first token of a second turn: on caches of the first, and on empty ones."""
    first = text[:FIRST]
    answer = pipeline.generate(first, max_new_tokens=ANSWER, ignore_eos=True).token_ids
    second = [*first, *answer, *text[FIRST : FIRST + QUESTION]]
    kept = pipeline.generate(second, max_new_tokens=1).stats
    fresh = pipeline.generate(second, max_new_tokens=1, cache_prompt=False).stats
    if kept.cached_tokens < FIRST + ANSWER - 1 or fresh.cached_tokens:
        raise click.ClickException(f"{kept.cached_tokens}, {fresh.cached_tokens} tokens cached")
    return kept.time_to_first_token, fresh.time_to_first_token


@click.command()
@pair_options
@click.option("--rounds", default=20, show_default=True, help="After one to warm up.")
def second_turn(main: str | None, draft: str | None, rounds: int) -> None:
    """Measure what a kept KV cache spares the second turn of a conversation."""
    pipeline = SpeculativePipeline(main, draft)
    text = pipeline.tokenizer.encode(long_text())
    times = [times_to_first_token(pipeline, text[37 * round_ :]) for round_ in range(rounds + 1)]
    for name, values in (
        ("kept (ms)", [1000 * kept for kept, _ in times[1:]]),
        ("fresh (ms)", [1000 * fresh for _, fresh in times[1:]]),
        ("ratio", [kept / fresh for kept, fresh in times[1:]]),
    ):
        click.echo(f"{name:<11} {quartiles(values, '.3g')}")
