"""Outputs that fit a JSON schema: alone by all methods, eight at once, a server."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from threading import Event, Thread
from time import monotonic, perf_counter
from typing import Any

import httpx
import numpy as np

from lab.benchmarks import priority
from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.requests import LENGTHS, compact, warmed
from lab.benchmarks.measuring import Measurements, in_turns
from lab.benchmarks.models import Models
from lab.benchmarks.peers.asks import Ask, BenchmarkError
from lab.benchmarks.peers.worker import WorkerProcess
from lab.benchmarks.record import Key, Row, select
from ov_specdec import SpeculativePipeline
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.server import serving_process

PROMPT = "Write a JSON object that describes a product.\n"
NAMES = (
    *("color", "width", "height", "status", "owner", "price", "title", "author", "city"),
    *("country", "state", "kind", "level", "amount", "total", "count", "index", "code"),
    *("label", "email", "phone", "street", "number", "active", "created", "updated"),
    *("version", "source", "weight", "length", "depth"),
)
KINDS: tuple[dict[str, Any], ...] = (
    {"type": "string", "maxLength": 24},
    {"type": "integer", "minimum": 0, "maximum": 9999},
    {"type": "boolean"},
    {"enum": ["low", "medium", "high"]},
)
FREE = "free text"
"""Plain decoding without a schema, over as many tokens as with it."""

SPACED = "default-any-whitespace"
"""What is compared with openvino.genai, which writes any whitespace."""

MOST = 1000
"""Tokens after which an answer is cut off, which its schema need not end."""

TOGETHER, HOSTILE = "8 requests, 8 schemas", "hostile grammars"
"""Forms besides those of single requests."""

FIELDS = 15
"""Of the schemas of requests that share passes or a server."""

CLIENTS, SECONDS = 4, 6.0
"""Clients of a server whose tokens are timed, and how long without hostile grammars, then with."""


def an_object(fields: int, generator: Random) -> dict[str, Any]:
    """A schema with so many fields, all of them required."""
    names = generator.sample(NAMES, fields)
    properties = {name: generator.choice(KINDS) for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }


def schemas(generator: Random) -> Mapping[str, dict[str, Any]]:
    """One schema of each kind, by what it is. Hardly anything is forced in the last one."""
    items = an_object(4, generator)
    objects = {f"{fields} fields": an_object(fields, generator) for fields in (8, 15, 30)}
    name = generator.choice(NAMES)  # else all turns have the same schema
    text = {"type": "string", "minLength": 100, "maxLength": 200}
    return {
        **objects,
        "list of 10 objects": {"type": "array", "items": items, "minItems": 10, "maxItems": 10},
        "one text": {"type": "object", "properties": {name: text}, "required": [name]},
    }


def structured(given: Given, pair: str, methods: Sequence[str], rounds: int) -> Measurements:
    """What a grammar does besides, which is short, and single requests."""
    yield from together(given.pairs[pair], rounds)
    yield from beside_hostile(given, pair, rounds // 2)
    yield from single(given, pair, methods, rounds)


def single(
    given: Given, pair: str, methods: Sequence[str], rounds: int, kinds: Collection[str] = ()
) -> Measurements:
    """Schemas of each kind, others in each round, by all methods; and free text of that length.

    kinds: only these; empty: all of them.
    """
    ids = load_tokenizer(given.pairs[pair].main).encode(PROMPT)
    with given.setup(pair) as setup, WorkerProcess(setup) as worker:
        measure = warmed(worker, methods, ids)
        for turn in range(rounds):
            for kind, schema in schemas(Random(turn)).items():
                if kinds and kind not in kinds:
                    continue
                key: Key = {"turn": turn, "pair": pair, "prompt": turn, "form": kind}
                for method in in_turns(methods, f"{turn}, {kind}"):
                    ask = ask_of(ids, schema, method, methods.index(method))
                    yield {**key, "method": method}, partial(measure, method, ask)
                for row in select(given.rows, **key, method="plain"):
                    free: Key = {**key, "form": f"{FREE}, {kind}", "method": "plain"}
                    yield free, partial(measure, "plain", Ask(ids, row["tokens"]))


def ask_of(ids: Sequence[int], schema: Mapping[str, Any], method: str, depth: int) -> Ask:
    """An answer by a method.

    depth: of alternatives around the schema, the same to anyone but a cache: openvino.genai would
    have compiled it for another of its settings.
    """
    for _ in range(depth):
        schema = {"anyOf": [schema]}
    ask = Ask(ids, MOST, ends=True, json_schema=json.dumps(schema))
    return replace(ask, json_whitespace="any") if method == SPACED else ask


def together(models: Models, rounds: int) -> Measurements:
    """Eight requests with a schema each, in the same passes."""
    with models.pipeline(max_batch_size=8) as pipeline:
        pipeline.prepare()
        for turn in range(-1, rounds):  # the first one warms up
            own = [an_object(FIELDS, Random(8 * turn + n)) for n in range(8)]
            for method in in_turns(tuple(LENGTHS), turn):
                key: Key = {"turn": turn, "prompt": turn, "form": TOGETHER, "method": method}
                measure = partial(all_at_once, pipeline, own, LENGTHS[method])
                if turn < 0:
                    measure()
                else:
                    yield key, measure


def all_at_once(
    pipeline: SpeculativePipeline, own: Sequence[Mapping[str, Any]], length: Any
) -> Row:
    """Tokens per second of one request for each schema."""
    start = perf_counter()
    results = pipeline.generate_batch(
        [PROMPT] * len(own),
        [{"json_schema": schema} for schema in own],
        num_assistant_tokens=length,
        max_new_tokens=MOST,
        cache_prompt=False,
    )
    seconds, number = perf_counter() - start, sum(len(result.token_ids) for result in results)
    return compact({"speed": number / seconds, "tokens": number})


def beside_hostile(given: Given, pair: str, rounds: int) -> Measurements:
    """A server at the usual priority, since grammars are tried at a lower one."""
    models = given.pairs[pair]
    own = (f"{name}={value}" for name, value in models.properties.items())
    properties = (word for each in own for word in ("--property", each))
    priority.change_all(priority.USUAL)
    try:
        with serving_process("--main", models.main, *properties) as (process, http):
            # A log that nobody reads fills its pipe, and then the server waits.
            assert process.stderr is not None
            Thread(target=process.stderr.read, daemon=True).start()
            numbers = count()
            list(seconds_of_tokens(http, 0, monotonic() + 1.0))
            for turn in range(rounds):
                key: Key = {"turn": turn, "prompt": turn, "form": HOSTILE}
                yield key, partial(p95, http, numbers)
    finally:
        priority.change_all(given.priority)


def p95(http: httpx.Client, numbers: Iterator[int]) -> Row:
    """Milliseconds of a token, without a client that sends hostile grammars and beside it."""
    row: Row = {}
    for name in ("alone", "beside"):
        end, is_over = monotonic() + SECONDS, Event()
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            sent = pool.submit(send_hostile, http, numbers, is_over) if name == "beside" else None
            clients = [
                pool.submit(seconds_of_tokens, http, client, end) for client in range(CLIENTS)
            ]
            times = [each for client in clients for each in client.result()]
            is_over.set()
        row[name] = 1000 * float(np.percentile(times, 95))
        row |= {} if sent is None else {"sent": sent.result()}
    return compact(row)


def seconds_of_tokens(http: httpx.Client, client: int, end: float) -> list[float]:
    """Seconds of each token of streamed answers: those of a piece share the time since the last."""
    found, fields = list[float](), {"stream": True, "max_tokens": MOST, "temperature": 0}
    usage = {"include_usage": True, "continuous_usage_stats": True}
    numbers = count(100 * client)
    while monotonic() < end:
        schema = an_object(FIELDS, Random(next(numbers)))
        body = {"prompt": PROMPT, **fields, "structured_outputs": {"json": schema}}
        last = done = 0.0
        with http.stream(
            "POST", "/v1/completions", json=body | {"stream_options": usage}
        ) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                total, now = json.loads(line[6:])["usage"]["completion_tokens"], perf_counter()
                if done:
                    new = int(total - done)
                    found += [(now - last) / new] * new if new else []
                last, done = now, total
    return found


def send_hostile(http: httpx.Client, numbers: Iterator[int], is_over: Event) -> int:
    """Send grammars that take too much to compile, each a new one; how many.

    Some of those with a large multiple take half of the time that they may, and are answered.
    """
    sent = 0
    while not is_over.is_set():
        number = next(numbers)
        slow = {"json": {"type": "integer", "multipleOf": 999_983 - 2 * number}}
        rules = "\n".join(f"r{n}: r{n + 1}" for n in range(20_000 + number))
        deep = {"grammar": f'start: r0\n{rules}\nr{20_000 + number}: "a"'}
        body = {"prompt": PROMPT, "structured_outputs": deep if number % 2 else slow}
        answer = http.post("/v1/completions", json={**body, "max_tokens": 1})
        if answer.status_code not in (httpx.codes.OK, httpx.codes.BAD_REQUEST):
            raise BenchmarkError(f"a hostile grammar got {answer.status_code}: {answer.text[:99]}")
        sent += 1
    return sent
