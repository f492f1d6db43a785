"""Outputs of random weights for schemas of all supported keywords, judged by `jsonschema`."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ov_specdec.options.generation import GenerationOptions
from tests.support.structured import generator, random_logits

KEYWORDS = st.sampled_from(["title", "format", "uniqueItems", "propertyNames", "enum", "$defs"])
NAMES = st.text("abcdef_", min_size=1, max_size=6) | KEYWORDS
SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | st.text('ab é"\\', max_size=4)
SILENT = [
    {"propertyNames": {"type": "string", "description": "A key."}},
    {"propertyNames": True, "unevaluatedProperties": {}, "minProperties": 0},
    {"uniqueItems": False, "minItems": 0, "unevaluatedItems": True, "minContains": 2},
    {"contains": {"type": "null"}, "minContains": 0},
    {"minLength": 0, "title": "t", "description": "d", "$comment": "c"},
    {"dependentRequired": {}, "dependentSchemas": {}},
    {"dependentRequired": {"a": []}, "dependentSchemas": {"a": {}}, "dependencies": {"a": []}},
    {"format": "int64", "if": {"type": "null"}, "then": {}, "else": {"title": "t"}, "not": False},
]
"""Keywords that say nothing."""


def ranges(name, most):
    """Bounds of a length."""
    return st.tuples(st.integers(0, most), st.integers(0, most)).map(
        lambda pair: {f"min{name}": min(pair), f"max{name}": max(pair)}
    )


def numbers(kind):
    bounds = st.tuples(st.integers(-500, 500), st.integers(1, 500)).flatmap(
        lambda pair: st.sampled_from(
            [
                {"minimum": pair[0], "maximum": pair[0] + pair[1]},
                {"exclusiveMinimum": pair[0] - 1, "exclusiveMaximum": pair[0] + pair[1] + 1},
            ]
        )
    )
    return bounds.map(lambda own: {"type": kind, **own})


PATTERNS = st.sampled_from(["^[a-c]{1,4}$", "^x+y$|^z$", "^[0-9]{2}-[0-9]{2}$", "^(ab|ba){2}$"])
FORMATS = st.sampled_from(["date", "time", "uuid", "ipv4"])
LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    numbers("integer"),
    numbers("number"),
    ranges("Length", 8).map(lambda own: {"type": "string", **own}),
    PATTERNS.map(lambda pattern: {"type": "string", "pattern": pattern}),
    FORMATS.map(lambda name: {"type": "string", "format": name}),
    SCALARS.map(lambda value: {"const": value}),
    st.sampled_from(SILENT).map(lambda value: {"const": value}),
    st.lists(SCALARS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    st.just({"$ref": "#/$defs/leaf"}),
)


@st.composite
def objects(draw, inner):
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    required = [name for name in properties if draw(st.booleans())]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


@st.composite
def arrays(draw, inner):
    first = draw(st.lists(inner, max_size=2))
    bounds = draw(ranges("Items", 3))
    made = {"type": "array", "prefixItems": first, **bounds, "items": draw(inner)}
    return made if first else {name: value for name, value in made.items() if name != "prefixItems"}


def nested(inner):
    inner = st.tuples(st.sampled_from([{}, *SILENT]), inner).map(lambda two: two[0] | two[1])
    either = st.lists(inner, min_size=1, max_size=3).map(lambda several: {"anyOf": several})
    return objects(inner) | arrays(inner) | either


SCHEMAS = st.recursive(LEAVES, nested, max_leaves=8).map(
    lambda schema: {"$defs": {"leaf": {"type": "integer", "minimum": 0, "maximum": 9}}, **schema}
)


@pytest.mark.parametrize("num_examples", [60, pytest.param(500, marks=pytest.mark.deep)])
def test_every_finished_output_is_valid(num_examples):
    made, finished = generator(draft=random_logits(noise=0.5)), []

    @settings(max_examples=num_examples, derandomize=True)
    @given(SCHEMAS, st.sampled_from(["compact", "spaced"]), st.integers(0, 1000))
    def run(schema, whitespace, seed):
        options = GenerationOptions(
            json_schema=schema,
            json_whitespace=whitespace,
            temperature=1.0,
            seed=seed,
            max_new_tokens=400,
        )
        [result] = made.batch([("x", options)])
        finished.append(result.finish_reason == "stop")
        if finished[-1]:
            value = json.loads(result.text)
            assert result.parsed == value
            Draft202012Validator(
                schema, format_checker=Draft202012Validator.FORMAT_CHECKER
            ).validate(value)

    run()
    assert len(finished) >= num_examples / 2
    assert sum(finished) / len(finished) >= 0.95
