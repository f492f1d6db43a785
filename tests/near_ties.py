"""How often outputs part that are equal in `exact` precision: `python -m tests.near_ties`.

Prints the tables of docs/exactness.md, measured on the embedded pair.
"""

import click

from ov_specdec import SpeculativePipeline
from tests.prompts import PROMPTS

NEW_TOKENS = 128
PRECISIONS = ("exact", "f32", "default")


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


def measure_second_turns(settings: dict) -> tuple[int, int, int]:
    """The same for plain second turns: on the caches of a speculative first, and on empty ones."""
    pipeline = SpeculativePipeline(**settings)
    parted = agreed = 0
    options = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    for prompt in PROMPTS:
        first = pipeline.tokenizer.encode(prompt)
        answer = pipeline.generate(first, num_assistant_tokens=4, **options).token_ids
        second = [*first, *answer, *pipeline.tokenizer.encode("\n\ndef main():")]
        reused = pipeline.generate(second, num_assistant_tokens=0, **options)
        fresh = pipeline.generate(second, num_assistant_tokens=0, cache_prompt=False, **options)
        place = parting(reused.token_ids, fresh.token_ids)
        parted += place is not None
        agreed += NEW_TOKENS if place is None else place
    return len(PROMPTS), parted, agreed


def print_table(rows: dict[tuple[str, str], tuple[int, int, int]]) -> None:
    """As Markdown."""
    click.echo("| KV cache | precision | runs that part | per 1,000 tokens |\n|---|---|---|---|")
    for (kv, precision), (runs, parted, agreed) in rows.items():
        rate = 1000 * parted / agreed
        click.echo(f"| {kv} | {precision} | {parted} of {runs} | {rate:.2f} |")


def main() -> None:
    """Print two tables: speculative against plain, and kept KV caches against empty ones."""
    cases = [(kv, precision) for kv in ("paged", "stateful") for precision in PRECISIONS]
    print_table({(kv, name): measure(kv, name) for kv, name in cases})
    turns = {(kv, name): measure_second_turns({"kv": kv, "precision": name}) for kv, name in cases}
    for kv in ("paged", "stateful"):
        settings = {"kv": kv, "properties": {"KV_CACHE_PRECISION": "u8"}, "profile": "none"}
        turns[f"{kv}, u8", "default"] = measure_second_turns(settings)
    print_table(turns)


if __name__ == "__main__":
    main()
