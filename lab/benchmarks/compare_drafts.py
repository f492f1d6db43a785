"""Speed of two drafts of one main model in turns, with one request and with several at once."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import click

from lab.benchmarks import priority
from lab.benchmarks.figures.results import speedups
from lab.benchmarks.measuring import in_turns
from lab.benchmarks.models import Models
from lab.benchmarks.options import model_options, prompt_options, several
from lab.benchmarks.record import Row, select
from lab.benchmarks.tables import in_quartiles, markdown
from lab.benchmarks.texts import Prompts
from ov_specdec import SpeculativePipeline
from ov_specdec.cli.terminal import with_errors
from ov_specdec.models.locate import locate
from ov_specdec.options.generation import PLAIN

KV_CACHE_GB = 0.7
"""Of each pipeline, whose main models are copies."""

RATIOS = (("draft", "plain"), ("other", "plain"), ("other", "draft"))


def measured(pipeline: SpeculativePipeline, prompts: Sequence[list[int]], **run: Any) -> Row:
    """Tokens a second of requests at once, and their texts."""
    start = perf_counter()
    results = pipeline.generate_batch(prompts, ignore_eos=True, cache_prompt=False, **run)
    seconds = perf_counter() - start
    texts = [result.token_ids for result in results]
    return {"speed": sum(map(len, texts)) / seconds, "texts": texts}


@click.command()
@with_errors
@model_options
@click.option("--other", metavar="DIR", required=True, help="The other draft model.")
@prompt_options("heldout", 8)
@several("--requests", int, (1, 4, 8), says="Requests at once.")
@click.option("--turns", default=6, show_default=True, help="Turns of each number of requests.")
@click.option("--size", default=64, show_default=True, help="Tokens of each text.")
def compare_drafts(
    models: Models, other: str, prompts: Prompts, requests: tuple[int, ...], turns: int, size: int
) -> None:
    """Compare two drafts of one main model, alone and with several requests."""
    priority.take()
    lines = [["requests", *map(" / ".join, RATIOS), "texts as plain"]]
    with ExitStack() as stack:
        pairs = {"draft": models, "other": replace(models, draft=locate(other))}
        pipelines = {
            name: stack.enter_context(pair.pipeline("model", kv_cache_size=KV_CACHE_GB))
            for name, pair in pairs.items()
        }
        for pipeline in pipelines.values():
            pipeline.prepare()
        ids = [ids for _, ids in prompts.ids(pipelines["draft"].tokenizer)]
        methods: dict[str, Callable[..., Row]] = {
            "plain": partial(measured, pipelines["draft"], max_new_tokens=size, **PLAIN),
            **{n: partial(measured, p, max_new_tokens=size) for n, p in pipelines.items()},
        }
        for number in requests:
            for method in methods.values():  # passes over so many sequences are prepared
                method(ids[:1] * number)
            rows = []
            for turn in range(turns):
                chosen = [ids[(turn + place) % len(ids)] for place in range(number)]
                for name in in_turns([*methods], turn):
                    key = {"turn": turn, "prompt": turn, "method": name}
                    rows.append({**key, **methods[name](chosen)})
            lines.append([str(number), *compared(rows)])
    click.echo(markdown(lines))


def compared(rows: Sequence[Row]) -> list[str]:
    """The ratios of speeds within turns, and how many texts are those of plain decoding."""
    ratios = (in_quartiles(speedups(rows, one, two)) for one, two in RATIOS)
    plain = {row["turn"]: row["texts"] for row in select(rows, method="plain")}
    same = [
        text == plain[row["turn"]][place] for row in rows for place, text in enumerate(row["texts"])
    ]
    return [*ratios, f"{sum(same)} of {len(same)}"]
