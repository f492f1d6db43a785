"""Structured output: what the text has to fit; and tools, with the schemas of their arguments."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ov_specdec.errors import OptionError, shorten
from ov_specdec.options.schemas import OF_WHOLE

TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
"""Names of tools: templates write them into prompts as they are."""

AnyTools = Sequence[Mapping[str, Any] | Callable[..., Any]]
"""Tools as they are given: as mappings, or as functions to describe."""


def read_schema(given: Any) -> dict[str, Any]:
    """A JSON schema from a mapping, its text, or a pydantic model; `OptionError` for others."""
    refuse = partial(OptionError, json_schema=given)
    if hasattr(given, "model_json_schema"):
        return dict(given.model_json_schema())
    try:
        # A mapping may hold what JSON has not.
        schema = json.loads(given if isinstance(given, str) else json.dumps(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise refuse(f"{{json_schema}} is not JSON ({error}): give a JSON schema") from error
    if not isinstance(schema, dict):
        raise refuse("{json_schema} is not a schema: give a JSON object, or a pydantic model")
    if "x-guidance" in schema:
        raise refuse("{json_schema} has 'x-guidance', which changes how it is read: leave it out")
    return schema


def check_schema(given: Any) -> Any:
    """Refuse what is no JSON schema."""
    read_schema(given)
    return given


def definition_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The mapping with the name of a tool or choice, which most have below their type."""
    inner = tool.get(str(tool.get("type")))
    return inner if isinstance(inner, Mapping) else tool


def read_tools(given: AnyTools) -> tuple[Mapping[str, Any], ...]:
    """Tools as mappings, functions too; `OptionError` for names that are invalid or not unique."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ValueError
    tools = tuple(each if isinstance(each, Mapping) else _as_tool(each) for each in given)
    known = set[str]()
    for tool in tools:
        name = definition_of(tool).get("name")
        if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
            problem = f"{{tools}} holds the name {shorten(name)}"
            raise OptionError(f"{problem}: give up to 128 letters, digits or _.:/-", tools=...)
        if name in known:
            raise OptionError(f"{{tools}} holds '{name}' twice: rename one of the two", tools=...)
        known.add(name)
    return tools


def _as_tool(function: Callable[..., Any]) -> Mapping[str, Any]:
    """A function as a tool, by its type hints and docstring."""
    from transformers.utils.chat_template_utils import get_json_schema

    try:
        described: Mapping[str, Any] = get_json_schema(function)
    except Exception as error:  # of several kinds that are not documented
        problem = f"{{tools}} holds {shorten(function)}, which cannot be described ({error})"
        raise OptionError(f"{problem}: give a schema", tools=...) from error
    return described


def read_choice(given: str | Mapping[str, Any]) -> Any:
    """A choice as a text: of a mapping, the name of the tool."""
    return definition_of(given).get("name", given) if isinstance(given, Mapping) else given


def as_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as chat templates know it: one of another type as a function of a text, `input`."""
    definition = definition_of(tool)
    if tool.get("type") != "custom":
        known = {name: value for name, value in definition.items() if name != "strict"}
        return known if definition is tool else {**tool, "function": known}
    grammar = (definition.get("format") or {}).get("grammar")
    told = {"description": f"Fits this grammar:\n{grammar['definition']}"} if grammar else {}
    parameters = {
        "type": "object",
        "properties": {"input": {"type": "string", **told}},
        "required": ["input"],
    }
    function = {name: definition[name] for name in ("name", "description") if name in definition}
    return {"type": "function", "function": {**function, "parameters": parameters}}


def parameters_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments, of which there are none if nothing is said of them."""
    given = definition_of(as_function(tool)).get("parameters") or {}
    is_given = any(given.get(key) for key in OF_WHOLE | {"properties", "required"})
    return {"type": "object", **({} if is_given else {"additionalProperties": False}), **given}


def argument_of(key: str, root: Mapping[str, Any]) -> Any:
    """The schema of one argument. root: of all."""
    return (root.get("properties") or {}).get(key, root.get("additionalProperties", {}))
