"""Options of structured output: what the text has to fit."""

import json
from typing import Any

from ov_specdec.errors import Option, OptionError

CONSTRAINTS = ("json_schema", "json_object", "regex", "choices", "grammar")
"""Options of which a generation has at most one."""

OF_JSON = CONSTRAINTS[:2]


def constraints_of(options: Any) -> list[str]:
    """The given options of what the text has to fit."""
    return [name for name in CONSTRAINTS if getattr(options, name) not in (None, False, ())]


def read_schema(given: Any) -> dict[str, Any]:
    """A JSON schema from a mapping, its text, or a pydantic model; `OptionError` for others."""
    name = Option("json_schema", given)
    if hasattr(given, "model_json_schema"):
        return dict(given.model_json_schema())
    try:
        # A mapping may hold what JSON has not.
        schema = json.loads(given if isinstance(given, str) else json.dumps(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(name, f" is not JSON ({error}): give a JSON schema") from error
    if not isinstance(schema, dict):
        raise OptionError(name, " is not a schema: give a JSON object, or a pydantic model")
    if "x-guidance" in schema:
        raise OptionError(name, " has 'x-guidance', which changes how it is read: leave it out")
    return schema


def check_schema(given: Any) -> Any:
    """Refuse what is no JSON schema."""
    read_schema(given)
    return given
