"""`ApiError`, an error as an answer, and how other errors become one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from ov_specdec.errors import (
    AudioError,
    BusyError,
    CacheFullError,
    ContextLengthError,
    LogitsError,
    Option,
    OptionError,
    cut,
)
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import request_fields

Json = dict[str, Any]
"""A JSON object."""

FIELDS = {"tools": "tools", **request_fields(GenerationOptions)}
"""Fields by their option, where a body does not name them otherwise."""

REASONS = {
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("dict_type", "model_type"), "must be a JSON object"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("int_from_float", "int_parsing", "int_type"), "must be a whole number"),
    **dict.fromkeys(("string_too_short", "too_short"), "must not be empty"),
    "extra_forbidden": "is not a field of a request: leave it out",
    "list_type": "must be a list",
    "string_type": "must be a text",
    "too_long": "must have at most {max_length} entries",
}
"""Messages that replace those of pydantic; they may name its bounds."""


@dataclass
class ApiError(Exception):
    """An error as an answer; docs/server.md lists all. param: at fault. retry_after: in seconds."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message


def invalid(param: str | None, message: str, code: str | None = None) -> ApiError:
    """The error 400 for an invalid request. param: the field at fault."""
    return ApiError(400, message, param, code)


def show(value: object) -> str:
    """A value for a message: as in JSON, and shortened."""
    shown = json.dumps(value, ensure_ascii=False, default=repr)
    shown = shown.encode(errors="backslashreplace").decode()  # halves of surrogate pairs
    return cut(shown)


def explain(error: ValidationError) -> tuple[str, str, str]:
    """The first error: its path, as `messages[0].content`, a sentence, and pydantic's type."""
    first = error.errors(include_url=False)[0]
    names = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
    path = "".join(name.replace("[]", "") for name in names)[1:]  # lists in forms end with []
    path = path.removesuffix(".[key]")  # how pydantic ends the path of a wrong key
    kind = first["type"]
    if kind == "missing":
        return path, f"{path} is missing: give it", kind
    reason = REASONS.get(kind, "").format_map(first.get("ctx", {}))
    reason = reason or first["msg"].replace("Input should", "must", 1)
    return path, f"{path}{'=' * bool(path)}{show(first['input'])} {reason}", kind


def said(what: str) -> WrapValidator:
    """Gives an invalid value of a union one error, instead of one for each type.

    what: "a text or several", for example.
    """

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            raise PydanticCustomError("kind", "must be {what}", {"what": what}) from error

    return WrapValidator(check)


def from_exception(
    error: BaseException, request_id: str, fields: Mapping[str, str] = FIELDS
) -> ApiError:
    """The answer for an exception of a generation.

    request_id: also in the log. fields: by their options.
    Errors that the caller can fix get 400, what is possible later 503. All others get 500, with
    only the id.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, AudioError):
        return ApiError(400, str(error), "file", "invalid_audio")

    def as_field(option: Option) -> str:
        name = fields.get(option.name, option.name)
        return name if option.value is ... else f"{name}={show(option.value)}"

    if isinstance(error, OptionError | LogitsError | CacheFullError):
        codes = {ContextLengthError: "context_length_exceeded", CacheFullError: "kv_cache_full"}
        param = fields.get(error.option or "")
        return invalid(param, error.render(as_field), codes.get(type(error)))
    if isinstance(error, BusyError):
        return ApiError(503, str(error), code="busy", retry_after=1)
    return ApiError(500, f"the server failed on this request: see its log for {request_id}", None)
