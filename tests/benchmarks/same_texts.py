"""How many texts are not those of plain decoding alone.

Every drafter, draft lengths from 1 to 15, batches whose requests arrive one after the other, kept
and loaded caches, memory that is given up, static shapes, the server; greedy, and drawn with a
seed. Then openvino.genai's texts against its own plain ones. Options choose models, prompts and
precision; `--batch-invariant false` shows what it is for.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import click
import httpx

from ov_specdec import SpeculativePipeline
from ov_specdec.cli.declare import options_of
from ov_specdec.cli.models import PIPELINE
from tests.benchmarks.labels import label
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options, prompt_options
from tests.benchmarks.peers.load import Request, serve_load
from tests.benchmarks.peers.measurement import Ask
from tests.benchmarks.peers.methods import Methods, find_method, load_engine
from tests.benchmarks.peers.setup import Setup
from tests.benchmarks.record import Row
from tests.benchmarks.tables import across, table
from tests.benchmarks.texts import Prompts
from tests.support.server import NAME, serving

LENGTHS = (1, 2, 3, 5, 8, 15, "auto")
BATCHES = (4, 16)
EVERY = 3
"""Steps between two arrivals."""

CLIENTS = 16
MEMORY = 4
"""Requests of the greatest length that the KV cache has room for where memory is given up."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {},
    "seeded": {"do_sample": True, "temperature": 0.8, "seed": 42},
}
Ids = Sequence[list[int]]
Texts = list[list[int]]
Produce = Callable[[Ids, Mapping[str, Any]], Sequence[list[int] | str]]


def one_by_one(pipeline: SpeculativePipeline, **more: Any) -> Produce:
    """Each prompt by itself."""
    return lambda prompts, run: [
        pipeline.generate(prompt, **{**run, **more}).token_ids for prompt in prompts
    ]


def staggered(pipeline: SpeculativePipeline) -> Produce:
    """All of them in one batch, one after the other arriving."""

    def produce(prompts: Ids, run: Mapping[str, Any]) -> Texts:
        texts: Texts = [[] for _ in prompts]
        waiting, steps = list(enumerate(prompts)), 0
        with pipeline.open_batch() as batch:
            while waiting or len(batch):
                if waiting and steps % EVERY == 0:
                    key, prompt = waiting.pop(0)
                    batch.add(key, prompt, **run)
                for key, chunk in batch.step():
                    if isinstance(chunk, BaseException):
                        raise chunk
                    texts[key] += chunk.token_ids
                steps += 1
        return texts

    return produce


def loaded(saved: SpeculativePipeline, fresh: SpeculativePipeline, folder: Path) -> Produce:
    """Each prompt on the cache that another process could have saved, in the middle of the text."""

    def produce(prompts: Ids, run: Mapping[str, Any]) -> Texts:
        texts = []
        for prompt in prompts:
            saved.generate(prompt, **{**run, "max_new_tokens": 40, "cache_prompt": True})
            saved.save_cache(folder / "kept.safetensors")
            fresh.load_cache(folder / "kept.safetensors")
            result = fresh.generate(prompt, **{**run, "cache_prompt": True})
            if not result.stats.cached_tokens:
                raise click.ClickException("nothing was found in the loaded cache")
            texts.append(result.token_ids)
        return texts

    return produce


def over_http(pipeline: SpeculativePipeline, *, stream: bool) -> Produce:
    """All of them by clients of a server, at once: texts, for its answers have no ids."""

    def produce(prompts: Ids, run: Mapping[str, Any]) -> list[str]:
        fields = {
            "max_tokens": run["max_new_tokens"],
            "ignore_eos": True,
            "temperature": run.get("temperature", 0),
            "stream": stream,
            "model": NAME,
        }
        if "seed" in run:
            fields["seed"] = run["seed"]

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


def ways(
    load: Callable[..., SpeculativePipeline], has_draft: bool, room: float, folder: Path
) -> Iterator[tuple[str, Produce]]:
    """Ways to come to the same texts, by name."""
    drafters: tuple[str, ...] = ("suffix", "prompt-lookup")
    if has_draft:
        drafters = ("model", *drafters, "both")
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
    for restart in ("", ", restarted"):
        with load(first, max_batch_size=16) as served:
            for stream in (False, True):
                how = "streamed" if stream else "whole"
                yield f"server, {CLIENTS} clients, {how}{restart}", over_http(served, stream=stream)


def peers(setup: Setup) -> Iterator[tuple[str, Callable[[Ids, int], Texts]]]:
    """openvino.genai's ways, by name; the first is its plain decoding."""
    methods = Methods(setup)

    def alone(name: str) -> Callable[[Ids, int], Texts]:
        return lambda prompts, most: [
            methods.run(name, Ask(prompt, most)).token_ids for prompt in prompts
        ]

    def together(name: str) -> Callable[[Ids, int], Texts]:
        engine, length = load_engine(name, setup), find_method(name).length
        return lambda prompts, most: [
            each.token_ids
            for each in serve_load(engine, [Request(ids, most, length) for ids in prompts])
        ]

    lookup = (f"genai-prompt-lookup-{length}" for length in (3, 5, 8))
    draft = (f"genai-draft-{length}" for length in (3, 5, 8) if setup.draft)
    for name in ("genai-plain", *draft, *lookup):
        yield label(name), alone(name)
    for name in ("genai-plain", *(["genai-draft-5"] if setup.draft else [])):
        yield f"{label(name)}, all together", together(name)


def count(produce: Callable[[], Sequence[Any]], expected: Callable[[], Sequence[Any]]) -> Row:
    """How many are not as expected."""
    wanted = expected()
    differ = sum(a != b for a, b in zip(produce(), wanted, strict=True))
    return {"differ": differ, "of": len(wanted)}


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Ways to the same texts, and openvino.genai's."""
    for by in ("way", "openvino.genai"):
        if chosen := [row for row in rows if by in row]:
            texts = across(chosen, "texts", lambda own: f"{own[0]['differ']} of {own[0]['of']}")
            yield table(chosen, [by], texts)


@click.command()
@model_options
@prompt_options("tests", 20)
@click.option("--max-new-tokens", default=128, show_default=True)
@options_of(PIPELINE, "batch_invariant")
@click.option("--only", multiple=True, help="Ways whose names hold this text, or another such.")
@click.option("--peers/--no-peers", "with_peers", default=True)
@measures
def same_texts(
    models: Models,
    prompts: Prompts,
    max_new_tokens: int,
    batch_invariant: bool | Literal["auto"],
    only: tuple[str, ...],
    with_peers: bool,
) -> Measurements:
    """Count texts that are not those of plain decoding alone."""
    yield from differing(
        models, prompts, max_new_tokens, batch_invariant, only, with_peers=with_peers
    )


def differing(
    models: Models,
    prompts: Prompts,
    max_new_tokens: int,
    batch_invariant: bool | Literal["auto"] = "auto",
    only: Sequence[str] = (),
    *,
    with_peers: bool = True,
) -> Measurements:
    """How many texts differ, by way and kind. only: ways whose names hold one of these."""
    load = partial(models.pipeline, batch_invariant=batch_invariant)
    with load("none") as plain:
        ids = [prompt for _, prompt in prompts.ids(plain.tokenizer)]
        run = {"max_new_tokens": max_new_tokens, "ignore_eos": True}
        options = {kind: {**run, **drawn} for kind, drawn in KINDS.items()}
        alone = {
            kind: [plain.generate(prompt, **drawn, cache_prompt=False) for prompt in ids]
            for kind, drawn in options.items()
        }
        click.echo(f"batch invariant: {plain.check_batch_invariant()}", err=True)
        longest = max(map(len, ids)) + max_new_tokens
        room = 2 * MEMORY * longest * plain.main.runner.bytes_per_token / 1e9
    with tempfile.TemporaryDirectory() as folder:
        for name, produce in ways(load, models.draft is not None, room, Path(folder)):
            if not only or any(text in name for text in only):
                field = "text" if name.startswith("server") else "token_ids"
                for kind, drawn in options.items():
                    expected = [getattr(each, field) for each in alone[kind]]
                    measure = partial(count, partial(produce, ids, drawn), partial(list, expected))
                    yield {"way": name, "texts": kind}, measure
        if with_peers:
            draft = str(models.draft or "")
            setup = Setup(str(models.main), draft, models.all_properties(), scratch=folder)
            ways_of_peers = peers(setup)
            _, first = next(ways_of_peers)
            expected_of_peers = cache(partial(first, ids, max_new_tokens))
            for name, theirs in ways_of_peers:
                made = partial(theirs, ids, max_new_tokens)
                key = {"openvino.genai": name, "texts": "not as its plain ones"}
                yield key, partial(count, made, expected_of_peers)
