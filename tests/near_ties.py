"""How often speculative and plain greedy output part, by precision: `python -m tests.near_ties`.

Prints the table of docs/exactness.md, measured on the embedded pair.
"""

import click

from ov_specdec import SpeculativePipeline
from tests.prompts import PROMPTS

NEW_TOKENS = 128


def parting(a: list[int], b: list[int]) -> int | None:
    """The place of the first token in which two outputs differ, if they do."""
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def measure(kv: str, precision: str) -> tuple[int, int, int]:
    """Runs, runs that parted, and tokens generated in agreement before that or the end."""
    pipeline = SpeculativePipeline(kv=kv, precision=precision)
    runs = parted = agreed = 0
    for prompt in PROMPTS:
        options = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "cache_prompt": False}
        plain = pipeline.generate(prompt, num_assistant_tokens=0, **options)
        for length in (2, 4, 8):
            result = pipeline.generate(prompt, num_assistant_tokens=length, **options)
            place = parting(plain.token_ids, result.token_ids)
            runs += 1
            parted += place is not None
            agreed += NEW_TOKENS if place is None else place
    return runs, parted, agreed


def main() -> None:
    """Print a Markdown table."""
    click.echo("| KV cache | precision | runs that part | per 1,000 tokens |\n|---|---|---|---|")
    for kv in ("paged", "stateful"):
        for precision in ("exact", "f32", "default"):
            runs, parted, agreed = measure(kv, precision)
            rate = 1000 * parted / agreed
            click.echo(f"| {kv} | {precision} | {parted} of {runs} | {rate:.2f} |")


if __name__ == "__main__":
    main()
