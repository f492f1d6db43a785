"""Bodies of requests as pydantic models, with validation errors in OpenAI's shape."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ov_specdec.openai.errors import FIELDS, invalid, show
from ov_specdec.options.checks import suggest

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

Unsupported = Mapping[str, Sequence[Any]]
"""Values without an effect, by the name of a field."""

B = TypeVar("B", bound="Body")


@dataclass
class Rules:
    """How requests are read. temperature, max_tokens: defaults; None takes the pipeline's.

    strict: whether unknown fields are refused; else each is logged once.
    """

    temperature: float | None = 1.0
    strict: bool = False
    max_tokens: int | None = None
    _logged: set[str] = field(default_factory=set)

    def check_unknown(self, name: str, value: object, known: Iterable[str]) -> None:
        """Log an unknown field, or refuse it; the hint is the field of the option of that name."""
        meant = partial(suggest, FIELDS.get(name, name), known, most=1, cutoff=0.8)
        if self.strict:
            hint = meant(otherwise="leave it out")
            message = f"{name}={show(value)} is not supported: {hint}"
            raise invalid(name, message, "unknown_parameter")
        shown = name[:MAX_NAME]
        if shown not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(shown)
            log.warning(
                "%r is ignored in requests: %s", shown, meant(otherwise="it is not a known field")
            )


def describe_unsupported(schema: dict[str, Any], body: "type[Body]") -> None:
    """Add the unsupported fields of a body to its JSON schema."""
    for name, values in body.unsupported.items():
        title = name.replace("_", " ").title()
        schema["properties"][name] = {"default": None, "enum": [*values, None], "title": title}


class Body(BaseModel):
    """A JSON object. A null field counts as missing.

    option_names: its fields that are generation options, by the names of the options. unsupported:
    fields that are refused, unless they have one of these values.
    """

    model_config = ConfigDict(
        strict=True, extra="allow", allow_inf_nan=False, json_schema_extra=describe_unsupported
    )

    option_names: ClassVar[tuple[str, ...]] = ()
    unsupported: ClassVar[Unsupported] = {}

    @property
    def options(self) -> dict[str, Any]:
        """The given options."""
        given = {name: getattr(self, name) for name in self.option_names}
        return {name: value for name, value in given.items() if value is not None}

    def check_others(self, rules: Rules, where: str = "") -> None:
        """Refuse unsupported fields, and have unknown ones logged or refused."""
        fields = type(self).model_fields
        known = {*self.unsupported, *(each.alias or name for name, each in fields.items())}
        for name, value in (self.model_extra or {}).items():
            if name in self.unsupported:
                _require_neutral(name.removesuffix("[]"), value, self.unsupported[name], where)
            elif value is not None:
                rules.check_unknown(where + name, value, known)
        for name in fields:
            if isinstance(own := getattr(self, name), Body):
                own.check_others(rules, f"{where}{name}.")


def _require_neutral(name: str, value: object, neutral: Sequence[Any], where: str) -> None:
    if any(value == each and type(value) is type(each) for each in (None, *neutral)):
        return
    taken = " or ".join(map(show, neutral))
    remedy = f"only {taken} is taken" if taken else "leave it out"
    message = f"{where}{name}={show(value)} is not supported: {remedy}"
    raise invalid(where + name, message, "unsupported_value")


def read(kind: type[B], content: object, rules: Rules | None = None) -> B:
    """Validate a body of this kind; `ApiError` names an invalid field by its JSON path."""
    _check_size(content)
    if not isinstance(content, Mapping):
        raise invalid(None, f"the body is {show(content)}: it must be a JSON object")
    try:
        body = kind.model_validate(dict(content))
    except ValidationError as error:
        raise invalid(*explain(error)[:2]) from error
    body.check_others(rules or Rules())
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
