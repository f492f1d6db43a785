"""Speed of two drafts of one main model in turns, with one request and with several at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from time import perf_counter

import click

from ov_specdec import SpeculativePipeline
from ov_specdec.models.locate import locate
from ov_specdec.options.generation import PLAIN
from tests.benchmarks import priority
from tests.benchmarks.measuring import Measurements, in_turns, measures
from tests.benchmarks.options import Models, model_options, prompt_options, several
from tests.benchmarks.record import Row, select
from tests.benchmarks.tables import Cell, in_quartiles, table
from tests.benchmarks.texts import Prompts

KV_CACHE_GB = 0.7
"""Of each pipeline, whose main models are copies."""


def speed(pipeline: SpeculativePipeline, prompts: Sequence[list[int]], **run: object) -> Row:
    """Tokens a second of all requests together, and milliseconds of drafting in a round."""
    start = perf_counter()
    results = pipeline.generate_batch(prompts, ignore_eos=True, cache_prompt=False, **run)
    seconds = perf_counter() - start
    rounds = [each for result in results for each in result.stats.rounds if each.num_drafted]
    return {
        "speed": sum(len(result.token_ids) for result in results) / seconds,
        "draft_ms": 1e3 * sum(r.draft_seconds for r in rounds) / max(len(rounds), 1),
        "texts": [result.token_ids for result in results],
    }


def over(method: str, base: str) -> Cell:
    """The ratios of the speeds of two methods within a turn."""

    def cell(rows: Sequence[Row]) -> str:
        turns = zip(select(rows, method=method), select(rows, method=base), strict=True)
        return in_quartiles([one["speed"] / other["speed"] for one, other in turns])

    return cell


def same(rows: Sequence[Row]) -> str:
    """How many texts are those of plain decoding."""
    plain = {row["turn"]: row["texts"] for row in select(rows, method="plain")}
    pairs = [p for row in rows for p in zip(row["texts"], plain[row["turn"]], strict=True)]
    return f"{sum(one == other for one, other in pairs)} of {len(pairs)}"


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each number of requests."""
    pairs = (("draft", "plain"), ("other", "plain"), ("other", "draft"))
    columns = {f"{one} / {two}": over(one, two) for one, two in pairs}
    yield table(rows, ["requests"], {**columns, "texts as plain": same})


@click.command()
@model_options
@click.option("--other", metavar="DIR", required=True, help="The other draft model.")
@prompt_options("heldout", 8)
@several("--requests", int, (1, 4, 8), says="Requests at once.")
@click.option("--turns", default=6, show_default=True, help="Turns of each number of requests.")
@click.option("--size", default=64, show_default=True, help="Tokens of each text.")
@measures
def compare_drafts(
    models: Models, other: str, prompts: Prompts, requests: tuple[int, ...], turns: int, size: int
) -> Measurements:
    """Compare two drafts of one main model, alone and with several requests."""
    priority.take()
    with ExitStack() as stack:
        pairs = {"draft": models, "other": replace(models, draft=locate(other))}
        pipelines = {
            name: stack.enter_context(pair.pipeline("model", kv_cache_size=KV_CACHE_GB))
            for name, pair in pairs.items()
        }
        for pipeline in pipelines.values():
            pipeline.prepare()
        ids = [ids for _, ids in prompts.ids(pipelines["draft"].tokenizer)]
        for number in requests:
            methods: dict[str, Callable[..., Row]] = {
                "plain": partial(speed, pipelines["draft"], max_new_tokens=size, **PLAIN),
                **{n: partial(speed, p, max_new_tokens=size) for n, p in pipelines.items()},
            }
            for method in methods.values():  # passes over so many sequences are prepared
                method(ids[:1] * number)
            for turn in range(turns):
                chosen = [ids[(turn + place) % len(ids)] for place in range(number)]
                for name in in_turns([*methods], turn):
                    key = {"requests": number, "turn": turn, "method": name}
                    yield key, partial(methods[name], chosen)
