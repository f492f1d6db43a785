"""Schemas of tools' arguments, as needed where each argument is written by itself."""

from collections.abc import Iterator, Mapping
from typing import Any

from ov_specdec.options.tools import as_function, definition_of

TYPES = frozenset(("string", "number", "boolean", "null", "object", "array"))


def type_of(value: Any) -> str:
    """The type of a value by its name in schemas."""
    names = {str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}
    return names.get(type(value), "number")


def parameters_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments."""
    given = definition_of(as_function(tool)).get("parameters") or {"properties": {}}
    return {"type": "object", **given}


def argument_of(key: str, root: Mapping[str, Any]) -> Any:
    """The schema of one argument. root: of all."""
    return (root.get("properties") or {}).get(key, root.get("additionalProperties", {}))


def cases_of(
    schema: Any, root: Mapping[str, Any], seen: set[str] | None = None
) -> Iterator[Mapping[str, Any]]:
    """The alternatives of a schema, each with what it says of all, and each reference once."""
    seen = set() if seen is None else seen
    at: Any = schema if isinstance(schema, Mapping) else {}
    names = [name for name in ("$ref", "anyOf", "oneOf", "allOf") if at.get(name)]
    if not names or (names == ["allOf"] and len(at["allOf"]) > 1):
        yield at
        return
    others, cases = {key: value for key, value in at.items() if key != names[0]}, at[names[0]]
    if names[0] == "$ref":
        target: Any = root
        for step in at["$ref"].split("/")[1:]:
            target = target.get(step) if isinstance(target, Mapping) else None
        cases = [] if at["$ref"] in seen else [target]
        seen.add(at["$ref"])
    for case in cases:
        yield from cases_of({**others, **case} if isinstance(case, Mapping) else others, root, seen)


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The types of a schema's values."""
    found = set[str]()
    for case in cases_of(schema, root):
        values = case.get("enum", [case["const"]] if "const" in case else ())
        given = [*map(type_of, values)] or case.get("type", TYPES)
        found |= {given} if isinstance(given, str) else {*given}
    return frozenset(found) or TYPES


def only_types(root: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of all arguments that keeps no more than their types, and which are required."""

    def loosen(schema: Any) -> Any:
        return schema if isinstance(schema, bool) else {"type": sorted(types_of(schema, root))}

    given, others = root.get("properties") or {}, root.get("additionalProperties", True)
    return {
        "type": "object",
        "properties": {key: loosen(schema) for key, schema in given.items()},
        "required": root.get("required") or [],
        "additionalProperties": loosen(others),
    }
