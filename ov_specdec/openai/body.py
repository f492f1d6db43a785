"""`Body`, the base of the bodies of requests, as pydantic models; and which fields are refused."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ov_specdec.errors import suggest
from ov_specdec.openai.errors import FIELDS, explain, invalid, show

log = logging.getLogger("ov_specdec.openai")

MAX_LOGGED = 1000
"""Maximum logged names to remember: requests may contain any number of them."""

MAX_NAME = 80
"""Maximum characters of such a name in the log."""

MAX_VALUES = 131_072
"""Maximum values in a body: as objects they take up to a hundred times their length in JSON."""

MAX_DEPTH = 100
"""Maximum nesting of a body: Python's recursion ends at 1,000, and some work takes 2 per level."""

NEWER_NAMES = {
    **{f"guided_{name}": f"give structured_outputs.{name}" for name in ("choice", "json", "regex")},
    **dict.fromkeys(("grammar", "guided_grammar"), "give structured_outputs.grammar, in Lark"),
    "function_call": "give tool_choice",
    "functions": "give tools",
    "json_schema": "give response_format, or structured_outputs.json",
    "response_format": "give text.format",
    "response_format.schema": "give response_format.json_schema.schema, with the type json_schema",
    "text.format.json_schema": "give text.format.schema",
}
"""What to give instead of older fields, and of fields of llama.cpp and other endpoints."""

NeutralValues = Mapping[str, Sequence[Any]]
"""The only values that are taken of each field: those that change nothing. () refuses all."""

B = TypeVar("B", bound="Body")


class Loose(BaseModel):
    """An object that may have more fields than those that are used."""

    model_config = ConfigDict(strict=True, extra="allow")


@dataclass
class UnknownFields:
    """Those of requests. strict: whether they are refused; else each is logged once."""

    strict: bool = False
    _logged: set[str] = field(default_factory=set)

    def check(self, name: str, value: object, known: Iterable[str]) -> None:
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


class Body(BaseModel):
    """A JSON object. A null field counts as missing.

    option_names: its fields that are generation options, by the names of the options.
    neutral_values: of fields that are refused otherwise.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    option_names: ClassVar[tuple[str, ...]] = ()
    neutral_values: ClassVar[NeutralValues] = {}

    @property
    def given_options(self) -> dict[str, Any]:
        """The given options, by name."""
        given = {name: getattr(self, name) for name in self.option_names}
        return {name: value for name, value in given.items() if value is not None}

    def check(self, unknown: UnknownFields, where: str = "") -> None:
        """Refuse what cannot be honoured, by its path; have unknown fields logged or refused."""
        fields = type(self).model_fields
        known = {*self.neutral_values, *(each.alias or name for name, each in fields.items())}
        given = {k: v for k, v in (self.model_extra or {}).items() if v is not None}
        for name, value in given.items():
            neutral = self.neutral_values.get(name)
            if neutral is None:
                unknown.check(where + name, value, known)
            elif not any(value == each and type(value) is type(each) for each in neutral):
                taken = " or ".join(map(show, neutral))
                remedy = f"only {taken} is taken" if taken else "leave it out"
                path = where + name.removesuffix("[]")
                remedy = NEWER_NAMES.get(path, remedy)
                message = f"{path}={show(value)} is not supported: {remedy}"
                raise invalid(path, message, "unsupported_value")
        for name in fields:
            if isinstance(own := getattr(self, name), Body):
                own.check(unknown, f"{where}{name}.")


def read(kind: type[B], content: object, unknown: UnknownFields | None = None) -> B:
    """Validate a body of this kind; `ApiError` names an invalid field by its JSON path."""
    check_size(content)
    if not isinstance(content, Mapping):
        raise invalid(None, f"the body is {show(content)}: it must be a JSON object")
    try:
        body = kind.model_validate(dict(content))
    except ValidationError as error:
        raise invalid(*explain(error)[:2]) from error
    body.check(unknown or UnknownFields())
    return body


def check_size(content: object) -> None:
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
