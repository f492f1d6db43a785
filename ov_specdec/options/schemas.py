"""JSON schemas: the types of their values, and what of them can be kept."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ov_specdec.errors import cut

TYPES = frozenset(("string", "number", "boolean", "null", "object", "array"))

BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions"))
BY_NAME |= {"dependentRequired", "dependentSchemas", "dependencies"}
"""Keywords of what is said of each name."""

OF_VALUES = frozenset(("enum", "const", "default", "examples"))
"""Keywords of values, which may look like schemas."""

OF_NUMBERS = frozenset(("enum", "const", "multipleOf", "minimum", "maximum"))
OF_NUMBERS |= {"exclusiveMinimum", "exclusiveMaximum"}

OF_WHOLE = frozenset(("$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if", "enum"))
OF_WHOLE |= {"const", "patternProperties", "propertyNames", "minProperties", "maxProperties"}
OF_WHOLE |= {"dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"}
"""Keywords of objects that say more than what each property is."""

NOTHING = {
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), ({},)),
    **dict.fromkeys(("uniqueItems", "not", "minLength", "minItems", "minProperties"), (False, 0)),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "then", "else"), (True, {})),
    "propertyNames": (True, {}, {"type": "string"}),
}
"""Values of keywords that say nothing."""

PARTNERS = {"if": {"then", "else"}, "then": {"if"}, "else": {"if"}}
PARTNERS |= {"minContains": {"contains"}, "maxContains": {"contains"}}
"""Keywords that say nothing without one of others."""

FORMATS = (
    *("date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname"),
    *("ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template"),
    *("json-pointer", "relative-json-pointer", "regex"),
)
"""Those of JSON Schema, by which others say nothing."""


OF_CASES = frozenset(("$ref", "anyOf", "oneOf", "allOf", "type", "enum", "const", "not", "if"))
OF_CASES |= {"pattern", "format", "minLength", "maxLength"}
"""Keywords of alternatives that are read."""

MAX_CASES = 10_000


def type_of(value: Any) -> str:
    """The type of a value by its name in schemas."""
    names = {str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}
    return names.get(type(value), "number")


def cases_of(schema: Any, root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a schema, each with what it says of all, and each reference once.

    Only with keywords of `OF_CASES`. `ValueError` for more than `MAX_CASES`: they multiply.
    """
    found, seen, rest = list[Mapping[str, Any]](), set[str](), [schema]
    for given in rest:
        at = {k: v for k, v in given.items() if k in OF_CASES} if isinstance(given, Mapping) else {}
        names = [name for name in ("$ref", "anyOf", "oneOf", "allOf") if at.get(name)]
        if not names or (names == ["allOf"] and len(at["allOf"]) > 1):
            found.append(at)
            continue
        others, cases = {key: value for key, value in at.items() if key != names[0]}, at[names[0]]
        if names[0] == "$ref":
            target: Any = root
            for step in at["$ref"].split("/")[1:]:
                target = target.get(step) if isinstance(target, Mapping) else None
            cases = [] if at["$ref"] in seen else [target]
            seen.add(at["$ref"])
        if len(rest) + len(cases) > MAX_CASES:
            raise ValueError(f"its alternatives have more than {MAX_CASES} combinations")
        rest += [{**others, **case} if isinstance(case, Mapping) else others for case in cases]
    return found


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The types of a schema's values."""
    found = set[str]()
    for case in cases_of(schema, root):
        values = case.get("enum", [case["const"]] if "const" in case else ())
        given = [*map(type_of, values)] or case.get("type", TYPES)
        found |= {given} if isinstance(given, str) else {*given}
    return frozenset(found) or TYPES


def change_parts(
    schema: Mapping[str, Any], change: Callable[[Mapping[str, Any]], Any]
) -> dict[str, Any]:
    """A schema with each schema directly in it changed."""

    def changed(key: str, value: Any) -> Any:
        if isinstance(value, list) and key not in OF_VALUES:
            return [changed("", each) for each in value]
        if not isinstance(value, Mapping) or key in OF_VALUES:
            return value
        is_named = key in BY_NAME
        return {k: changed("", each) for k, each in value.items()} if is_named else change(value)

    return {key: changed(key, value) for key, value in schema.items()}


def simplify(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without keywords that say nothing, of which llguidance refuses some."""
    require_exact(schema)
    parts = change_parts(schema, simplify)
    kept = {key: value for key, value in parts.items() if not _says_nothing(key, value)}
    if kept.get("minContains") == 0 and "maxContains" not in kept:
        kept.pop("contains", None)
    return {key: kept[key] for key in kept if kept.keys() & PARTNERS.get(key, {key})}


def _says_nothing(key: str, value: Any) -> bool:
    if key in ("title", "description", "$comment"):  # or a schema in others of one's own
        return isinstance(value, str)
    if key.startswith("dependen") and isinstance(value, dict):
        value = {name: each for name, each in value.items() if each not in ([], {}, True)}
    is_format = key == "format" and isinstance(value, str)
    return value in NOTHING.get(key, ()) or (is_format and value not in FORMATS)


def require_exact(schema: Mapping[str, Any]) -> None:
    """`ValueError` for numbers that llguidance may change, since it reads them as doubles."""

    def read(number: str) -> None:
        if abs(float(number)) >= 2**53:
            raise ValueError(f"it holds {cut(number)}, which is not below 2**53")

    numbers = {key: schema[key] for key in schema.keys() & OF_NUMBERS}
    types = schema.get("type")
    is_whole = isinstance(types, str | list) and "integer" in types and "number" not in types
    if is_whole and schema.get("maximum") == 2**63 - 1:
        del numbers["maximum"]  # the largest of 64 bits is kept
    json.loads(json.dumps(numbers), parse_int=read, parse_float=read)


def require_exact_within(grammar: str) -> None:
    """The same for the schemas of a grammar in Lark, after `%json`."""
    for begun in re.finditer(r"%json\s*", grammar):
        schema: Any = None
        with suppress(ValueError):  # it tells why, once it is compiled
            schema = json.JSONDecoder().raw_decode(grammar, begun.end())[0]
        if isinstance(schema, dict):
            simplify(schema)


def loosen(
    schema: Mapping[str, Any], root: Mapping[str, Any], refuses: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """A schema without what is refused of it. Its types are kept.

    root: of all. refuses: whether a schema cannot be kept that has no others in it.
    """
    given = {key: value for key, value in schema.items() if key != "oneOf"}
    if "oneOf" in schema:
        either = {"anyOf": schema["oneOf"]}
        given |= {"allOf": [*given.get("allOf", ()), either]} if "anyOf" in given else either
    alone = change_parts(given, lambda _: True)
    kept = {key: given[key] for key in alone if not refuses({key: alone[key]})}
    if refuses({key: alone[key] for key in kept}):
        kept = {}
    types = {} if kept == schema else {"type": sorted(types_of(schema, root))}
    return {**types, **change_parts(kept, lambda part: loosen(part, root, refuses))}
