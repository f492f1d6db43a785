"""Outputs that fit a JSON schema: without drafts, by default, and openvino.genai."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from ov_specdec.text.tokenizer import load_tokenizer
from tests.benchmarks.figures.given import Given
from tests.benchmarks.figures.requests import TIMEOUT, WARM_UP, generate
from tests.benchmarks.measuring import Measurements, in_turns
from tests.benchmarks.peers.measurement import Ask
from tests.benchmarks.peers.process import WorkerProcess, load_request
from tests.benchmarks.record import Key, Row

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
"""The task of plain decoding without a schema, over as many tokens."""

MOST = 1000
"""Tokens of an output, which its schema ends before."""


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
    text = {"type": "string", "minLength": 100, "maxLength": 200}
    return {
        **{f"{fields} fields": an_object(fields, generator) for fields in (8, 15, 30)},
        "list of 10 objects": {"type": "array", "items": items, "minItems": 10, "maxItems": 10},
        "one text": {"type": "object", "properties": {"text": text}, "required": ["text"]},
    }


def structured(given: Given, pair: str, methods: Sequence[str], rounds: int) -> Measurements:
    """Schemas of each kind, others in each round, by all methods; and free text of that length."""
    ids = load_tokenizer(given.pairs[pair].main).encode(PROMPT)
    with given.setup(pair) as setup, WorkerProcess() as worker:
        worker.ask(load_request(methods[0], setup), TIMEOUT)
        for method in methods:
            generate(worker, method, Ask(ids, WARM_UP))
        for turn in range(rounds):
            for kind, schema in schemas(Random(turn)).items():
                ask = Ask(ids, MOST, ends=True, json_schema=json.dumps(schema))
                key: Key = {"turn": turn, "pair": pair, "prompt": turn, "task": kind}
                lengths = list[int]()
                for method in in_turns(methods, turn):
                    yield {**key, "method": method}, partial(noted, worker, method, ask, lengths)
                if lengths:  # nothing where the file has these rows
                    free = Ask(ids, lengths[0])
                    yield (
                        {**key, "task": f"{FREE}, {kind}", "method": "plain"},
                        partial(generate, worker, "plain", free),
                    )


def noted(worker: WorkerProcess, method: str, ask: Ask, lengths: list[int]) -> Row:
    """One generation, whose length is noted."""
    row = generate(worker, method, ask)
    lengths.append(row["tokens"])
    return row
