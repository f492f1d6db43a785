"""How many texts are not those of plain decoding alone, by the way to them.

Every drafter, draft lengths from 1 to 15, batches whose requests arrive one after the other, kept
and loaded caches, memory that is given up, static shapes, the server; greedy, and drawn with a
seed.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click
import httpx

from lab.benchmarks.figures.given import Given
from lab.benchmarks.measuring import Measurements
from lab.benchmarks.models import Models
from lab.benchmarks.record import Row
from lab.benchmarks.texts import Prompts
from ov_specdec import SpeculativePipeline
from ov_specdec.drafters.factory import DrafterName
from tests.support.server import NAME, serving

LENGTHS = (1, 2, 5, 15, "auto")
BATCHES = (4, 16)
EVERY = 3
"""Steps between two arrivals."""

READ_TOGETHER = 2
"""Tokens at the end of a prompt, which are read again on any cache."""

CLIENTS = 16
MEMORY = 4
"""Requests of the greatest length that the KV cache has room for where memory is given up."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {},
    "seeded": {"do_sample": True, "temperature": 0.8, "seed": 42},
}
Ids = Sequence[list[int]]
Produce = Callable[[Ids, Mapping[str, Any]], Sequence[list[int] | str]]


def texts(given: Given, pairs: Sequence[str], number: int, tokens: int) -> Measurements:
    """How many texts of some prompts differ, by pair, way and kind."""
    for pair in given.known(pairs):
        models = given.pairs[pair]
        with models.pipeline("none") as plain, tempfile.TemporaryDirectory() as folder:
            ids = [prompt for _, prompt in Prompts.read("tests", number).ids(plain.tokenizer)]
            run = {"max_new_tokens": tokens, "ignore_eos": True}
            options = {kind: {**run, **drawn} for kind, drawn in KINDS.items()}
            alone = {
                kind: [plain.generate(prompt, **drawn, cache_prompt=False) for prompt in ids]
                for kind, drawn in options.items()
            }
            longest = max(map(len, ids)) + tokens
            room = 2 * MEMORY * longest * plain.main.runner.bytes_per_token / 1e9
            for way, produce in ways(models, room, Path(folder)):
                field = "text" if way.startswith("server") else "token_ids"
                for kind, drawn in options.items():
                    expected = [getattr(each, field) for each in alone[kind]]
                    measure = partial(count, partial(produce, ids, drawn), expected)
                    yield {"pair": pair, "way": way, "texts": kind}, measure


def count(produce: Callable[[], Sequence[Any]], expected: Sequence[Any]) -> Row:
    """How many are not as expected."""
    differ = sum(a != b for a, b in zip(produce(), expected, strict=True))
    return {"differ": differ, "of": len(expected)}


def ways(models: Models, room: float, folder: Path) -> Iterator[tuple[str, Produce]]:
    """Ways to come to the same texts, by name."""
    load = models.pipeline
    alone: tuple[DrafterName, ...] = ("suffix", "prompt-lookup")
    drafters = ("model", *alone, "both") if models.draft else alone
    for drafter in drafters:
        with load(drafter) as pipeline:
            pipeline.prepare()
            for length in LENGTHS:
                once = one_by_one(pipeline, num_assistant_tokens=length, cache_prompt=False)
                yield f"{drafter}, {length} draft tokens", once
            yield f"{drafter}, first turns", one_by_one(pipeline)
            yield f"{drafter}, on kept caches", one_by_one(pipeline)
            for size in BATCHES:
                with load(drafter, max_batch_size=size) as batched:
                    yield f"{drafter}, {size} at a time, arriving", staggered(batched)
    first = drafters[0]
    with load("none", max_batch_size=16) as plain:
        yield "plain, 16 at a time, arriving", staggered(plain)
    with load(first, max_batch_size=16, kv_cache_size=room) as crowded:
        yield f"{first}, 16 at a time, memory for {MEMORY}", staggered(crowded)
    with load(first, static_shapes=[2, 4, 8, 16], max_batch_size=16) as static:
        static.prepare()
        yield f"{first}, static shapes", one_by_one(static)
        yield f"{first}, static shapes, 16 at a time", staggered(static)
    with load(first) as saved, load(first) as fresh:
        yield f"{first}, on loaded caches", loaded(saved, fresh, folder)
    with load(first, max_batch_size=16) as served:
        for how in ("whole", "streamed"):
            yield f"server, {CLIENTS} clients, {how}", over_http(served, stream=how == "streamed")


def one_by_one(pipeline: SpeculativePipeline, **more: Any) -> Produce:
    """Each prompt by itself."""
    return lambda prompts, run: [
        pipeline.generate(prompt, **{**run, **more}).token_ids for prompt in prompts
    ]


def staggered(pipeline: SpeculativePipeline) -> Produce:
    """All of them in one batch, one after the other arriving."""

    def produce(prompts: Ids, run: Mapping[str, Any]) -> list[list[int]]:
        made: list[list[int]] = [[] for _ in prompts]
        waiting, steps = list(enumerate(prompts)), 0
        with pipeline.open_batch() as batch:
            while waiting or len(batch):
                if waiting and steps % EVERY == 0:
                    key, prompt = waiting.pop(0)
                    batch.add(key, prompt, **run)
                for key, chunk in batch.step():
                    if isinstance(chunk, BaseException):
                        raise chunk
                    made[key] += chunk.token_ids
                steps += 1
        return made

    return produce


def loaded(saved: SpeculativePipeline, fresh: SpeculativePipeline, folder: Path) -> Produce:
    """Each prompt on the cache that another process could have saved, in the middle of the text."""

    def produce(prompts: Ids, run: Mapping[str, Any]) -> list[list[int]]:
        made = []
        for prompt in prompts:
            saved.generate(prompt, **{**run, "max_new_tokens": 40, "cache_prompt": True})
            saved.save_cache(folder / "kept.safetensors")
            fresh.load_cache(folder / "kept.safetensors")
            result = fresh.generate(prompt, **{**run, "cache_prompt": True})
            if not result.stats.cached_tokens and len(prompt) > READ_TOGETHER:
                raise click.ClickException("nothing was found in the loaded cache")
            made.append(result.token_ids)
        return made

    return produce


def over_http(pipeline: SpeculativePipeline, *, stream: bool) -> Produce:
    """All of them by clients of a server, at once: texts, for its answers have no ids."""

    def produce(prompts: Ids, run: Mapping[str, Any]) -> list[str]:
        drawn = {name: run[name] for name in ("temperature", "seed") if name in run}
        fields = {"max_tokens": run["max_new_tokens"], "ignore_eos": True, "stream": stream}
        fields |= {"model": NAME, "temperature": 0, **drawn}

        def ask(prompt: list[int]) -> str:
            body = {**fields, "prompt": prompt}
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=600)
            answer.raise_for_status()
            if not stream:
                return str(answer.json()["choices"][0]["text"])
            events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
            return "".join(json.loads(event)["choices"][0]["text"] for event in events)

        with serving(pipeline) as server, ThreadPoolExecutor(CLIENTS) as clients:
            return list(clients.map(ask, prompts))

    return produce
