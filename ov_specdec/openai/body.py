"""Bodies of requests as pydantic models, with validation errors in OpenAI's shape."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ov_specdec.checks import suggest
from ov_specdec.openai.errors import FIELDS, ApiError, invalid, show

log = logging.getLogger("ov_specdec.openai")

MAX_LOGGED = 1000
"""Maximum logged names to remember: requests may contain any number of them."""

MAX_NAME = 80
"""Maximum characters of such a name in the log."""

MAX_VALUES = 131_072
"""Maximum values in a body: as objects they take up to a hundred times their length in JSON."""

MAX_DEPTH = 100
"""Maximum nesting of a body: Python's recursion ends at 1,000, and some work takes 2 per level."""

REASONS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a JSON object",
    "extra_forbidden": "is not a field of a request: leave it out",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_type": "must be a JSON object",
    "string_too_short": "must not be empty",
    "string_type": "must be a text",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must not be empty",
}
"""Messages that replace those of pydantic; they may name its bounds."""

B = TypeVar("B", bound="Body")


@dataclass
class UnknownNames:
    """Handles unknown fields: logs each name once, or refuses it."""

    refuse: bool = False
    _logged: set[str] = field(default_factory=set)

    def check(self, name: str, value: object, known: Mapping[str, object]) -> None:
        """Log an unknown name; `ApiError` if unknown names are refused."""
        if self.refuse:
            hint = _hint(name, known, "leave it out")
            message = f"{name}={show(value)} is not supported: {hint}"
            raise invalid(name, message, "unknown_parameter")
        shown = name[:MAX_NAME]
        if shown not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(shown)
            hint = _hint(name, known, "it is not a known field")
            log.warning("%r is ignored in requests: %s", shown, hint)


def _hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """A suggestion: the field of the option with that name, or one with a similar name."""
    return suggest(FIELDS.get(name, name), known, otherwise, most=1, cutoff=0.8)


@dataclass
class Rules:
    """Rules for parsing requests. temperature: the default; None takes the pipeline's."""

    temperature: float | None = 1.0
    unknown: UnknownNames = field(default_factory=UnknownNames)


class Body(BaseModel):
    """A JSON object. A null field counts as missing.

    option_names: its fields that are generation options, by the names of the options.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    option_names: ClassVar[tuple[str, ...]] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The given options."""
        given = {name: getattr(self, name) for name in self.option_names}
        return {name: value for name, value in given.items() if value is not None}

    def unknown(self, where: str = "") -> Iterator[tuple[str, Any, Mapping[str, object]]]:
        """Unknown fields: path, value, and the known names."""
        fields = type(self).model_fields
        known = {each.alias or name: each for name, each in fields.items()}
        for name, value in (self.model_extra or {}).items():
            if value is not None:
                yield where + name, value, known
        for name in fields:
            if isinstance(own := getattr(self, name), Body):
                yield from own.unknown(f"{where}{name}.")


def read(kind: type[B], content: object, unknown: UnknownNames | None = None) -> B:
    """Validate a body of this kind; `ApiError` names an invalid field by its JSON path."""
    _check_size(content)
    if not isinstance(content, Mapping):
        raise invalid(None, f"the body is {show(content)}: it must be a JSON object")
    try:
        body = kind.model_validate(dict(content))
    except ValidationError as error:
        raise _explain(error) from error
    unknown = unknown or UnknownNames()
    for name, value, known in body.unknown():
        unknown.check(name, value, known)
    return body


def _check_size(content: object) -> None:
    """Refuse a body of too many values, or one that is nested too deeply."""
    level: list[Any] = [[content]]
    depth = num_values = -1  # without the list around it
    while level:
        depth, num_values = depth + 1, num_values + sum(map(len, level))
        if depth > MAX_DEPTH:
            raise invalid(None, f"the body is nested more than {MAX_DEPTH} deep: nest it less")
        if num_values > MAX_VALUES:
            raise invalid(None, f"the body has more than {MAX_VALUES} values: send fewer")
        values = (each.values() if isinstance(each, dict) else each for each in level)
        level = [v for several in values for v in several if isinstance(v, dict | list)]


def _explain(error: ValidationError) -> ApiError:
    """The first error of a body."""
    path, reason, kind = explain(error)
    return invalid(path, reason, kind if kind == "unsupported_value" else None)


def explain(error: ValidationError) -> tuple[str, str, str]:
    """The first error: its path, a sentence, and pydantic's type."""
    first = error.errors(include_url=False)[0]
    path, kind = _json_path(first["loc"]), first["type"]
    if kind == "missing":
        return path, f"{path} is missing: give it", kind
    reason = REASONS.get(kind, "").format_map(first.get("ctx", {}))
    reason = reason or first["msg"].replace("Input should", "must", 1)
    return path, f"{path}{'=' * bool(path)}{show(first['input'])} {reason}", kind


def _json_path(steps: tuple[int | str, ...]) -> str:
    """A path such as `messages[0].content`; lists in forms end with []."""
    names = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    path = "".join(name.replace("[]", "") for name in names)[1:]
    return path.removesuffix(".[key]")  # how pydantic ends the path of a wrong key
