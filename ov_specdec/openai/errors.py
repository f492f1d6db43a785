"""Events and errors in OpenAI's form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

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
from ov_specdec.speech.options import TranscriptionOptions

Json = dict[str, Any]
"""A JSON object."""

LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Characters that clients such as httpx treat as line ends, and JSON does not escape."""

DONE = b"data: [DONE]\n\n"


def encode_event(content: Json, name: str | None = None) -> bytes:
    """A server-sent event whose data is a JSON object."""
    head = "" if name is None else f"event: {name}\n"
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).translate(LINE_ENDS)
    return f"{head}data: {data}\n\n".encode()


FIELDS = {
    **dict.fromkeys(("json_object", "json_schema"), "response_format"),
    "tools": "tools",
    **request_fields(GenerationOptions),
    **request_fields(TranscriptionOptions),
    "max_new_tokens": "max_tokens",
    "prompt_logprobs": "echo",
    "reference_texts": "prediction",
}
"""Fields by their option."""

OF_RESPONSES = {
    **dict.fromkeys(("json_object", "json_schema"), "text.format"),
    "max_new_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
}
"""Fields of /v1/responses that have other names."""

NONE: Mapping[str, str] = MappingProxyType({})
"""No fields."""


@dataclass
class ApiError(Exception):
    """An error as an answer; docs/server.md lists all. param: at fault. retry_after: in seconds."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is pickled with its arguments, here only the message.
        return ApiError, (self.status, self.message, self.param, self.code, self.retry_after)

    def body(self) -> Json:
        """The body of the answer."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        told = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": told}


def invalid(param: str | None, message: str, code: str | None = None) -> ApiError:
    """The error 400 for an invalid request. param: the field at fault."""
    return ApiError(400, message, param, code)


def show(value: object) -> str:
    """A value for a message: as in JSON, and shortened."""
    shown = json.dumps(value, ensure_ascii=False, default=repr)
    shown = shown.encode(errors="backslashreplace").decode()  # halves of surrogate pairs
    return cut(shown)


def from_exception(
    error: BaseException, request_id: str, others: Mapping[str, str] = NONE
) -> ApiError:
    """The answer for an exception of a generation.

    request_id: also in the log. others: see `Ask.names`.
    Errors that the caller can fix get 400, what is possible later 503. All others get 500, with
    only the id.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, AudioError):
        return ApiError(400, str(error), "file", "invalid_audio")
    names = {**FIELDS, **others}

    def as_field(option: Option) -> str:
        name = names.get(option.name, option.name)
        return name if option.value is ... else f"{name}={show(option.value)}"

    if isinstance(error, OptionError | LogitsError | CacheFullError):
        codes = {ContextLengthError: "context_length_exceeded", CacheFullError: "kv_cache_full"}
        param = names.get(error.option or "")
        return invalid(param, error.render(as_field), codes.get(type(error)))
    if isinstance(error, BusyError):
        return ApiError(503, str(error), code="busy", retry_after=1)
    return ApiError(500, f"the server failed on this request: see its log for {request_id}", None)
