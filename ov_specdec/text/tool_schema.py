"""Schemas of tools' arguments, as formats need them that write each argument by itself."""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any

from ov_specdec.options.tools import definition_of

IMPLIED = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "object": ("properties", "additionalProperties", "patternProperties", "required"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
}
"""Types by the keywords that only they have."""

TYPES = frozenset({"boolean", "null", *IMPLIED})

OF_VALUES = {str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}

MAX_DEPTH = 16
"""References that are followed within one schema."""


class UnsupportedError(ValueError):
    """A keyword cannot be kept."""


class Kind(Enum):
    """How an argument is written by itself."""

    TEXT = auto()
    TEXT_OR_NULL = auto()
    JSON = auto()
    ANY = auto()


def parameters_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments. Those of a custom tool are one text, `input`."""
    if tool.get("type") == "custom":
        return {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        }
    given = definition_of(tool).get("parameters") or {"properties": {}}
    return {"type": "object", **{k: v for k, v in given.items() if k != "x-guidance"}}


def kind_of(schema: Any, root: Mapping[str, Any]) -> Kind:
    """How a value of a schema is written. root: holds what it refers to."""
    types = types_of(schema, root)
    if "string" not in types:
        return Kind.JSON
    if types == TYPES:
        return Kind.ANY
    return Kind.TEXT_OR_NULL if "null" in types else Kind.TEXT


def texts_of(schema: Any, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The alternatives of a schema that are of strings."""
    schema = _resolve(schema, root)
    cases = schema.get("anyOf") or schema.get("oneOf")
    if not cases:
        yield schema
    for case in cases or ():
        if "string" in types_of(case, root):
            yield from texts_of(case, root)


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The types of a schema's values, where integers are numbers."""
    schema = _resolve(schema, root)
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return frozenset(OF_VALUES.get(type(value), "number") for value in values)
    if cases := schema.get("anyOf") or schema.get("oneOf"):
        if depth > MAX_DEPTH:
            return TYPES
        return frozenset().union(*(types_of(case, root, depth + 1) for case in cases))
    given = schema.get("type", [name for name, keys in IMPLIED.items() if schema.keys() & {*keys}])
    names = [given] if isinstance(given, str) else given
    return frozenset("number" if name == "integer" else name for name in names) or TYPES


def _resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or what it refers to."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return {}
        if "$ref" not in schema:
            return schema
        at: Any = root
        for step in str(schema["$ref"]).split("/")[1:]:
            at = at.get(step) if isinstance(at, Mapping) else None
        schema = at
    return {}
