"""What a kept KV cache spares the second turn of a conversation: `python -m tests.second_turn`.

Prints figures of docs/benchmarks.md. Options: `--main DIR --draft DIR`, else the embedded pair.
"""

import argparse
from pathlib import Path
from statistics import quantiles

import click

from ov_specdec import SpeculativePipeline

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
@click.option("--main", help="Folder of the main model. [the embedded one]")
@click.option("--draft", help="Folder of the draft model. [the embedded one]")
@click.option("--rounds", default=20, help="After one to warm up.")
def run(main: str | None, draft: str | None, rounds: int) -> None:
    """Medians and quartiles over rounds."""
    pipeline = SpeculativePipeline(main, draft)
    text = pipeline.tokenizer.encode(Path(argparse.__file__).read_text(encoding="utf-8"))
    times = [times_to_first_token(pipeline, text[37 * round_ :]) for round_ in range(rounds + 1)]
    for name, values in (
        ("kept (ms)", [1000 * kept for kept, _ in times[1:]]),
        ("fresh (ms)", [1000 * fresh for _, fresh in times[1:]]),
        ("ratio", [kept / fresh for kept, fresh in times[1:]]),
    ):
        low, middle, high = quantiles(values, n=4)
        click.echo(f"{name:<11} {middle:.3g} ({low:.3g} to {high:.3g})")


if __name__ == "__main__":
    run()
