"""Schemas of tools' arguments, as needed where each argument is written by itself."""

from collections.abc import Iterator, Mapping
from typing import Any

from ov_specdec.options.tools import as_function, definition_of

TYPES = frozenset(("string", "number", "boolean", "null", "object", "array"))

OF_VALUES = {str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}


def parameters_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments."""
    given = definition_of(as_function(tool)).get("parameters") or {"properties": {}}
    return {"type": "object", **given}


def cases_of(
    schema: Any, root: Mapping[str, Any], seen: set[str] | None = None
) -> Iterator[Mapping[str, Any]]:
    """The alternatives of a schema, each reference once. root: holds what it refers to."""
    seen = set() if seen is None else seen
    at: Any = schema if isinstance(schema, Mapping) else {}
    cases = at.get("anyOf") or at.get("oneOf")
    if isinstance(path := at.get("$ref"), str):
        target: Any = root
        for step in path.split("/")[1:]:
            target = target.get(step) if isinstance(target, Mapping) else None
        cases = [] if path in seen else [target]
        seen.add(path)
    elif not cases:
        yield at
    for case in cases or ():
        yield from cases_of(case, root, seen)


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The types of a schema's values, where integers are numbers."""
    found = set[str]()
    for case in cases_of(schema, root):
        values = case.get("enum", [case["const"]] if "const" in case else ())
        names = [OF_VALUES.get(type(value), "number") for value in values]
        given = names or case.get("type", TYPES)
        found |= {given} if isinstance(given, str) else {*given}
    return frozenset("number" if name == "integer" else name for name in found) or TYPES
