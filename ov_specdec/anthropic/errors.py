"""Errors in Anthropic's form."""

import re

from ov_specdec.api.errors import ApiError, Json

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(error: ApiError) -> Json:
    """The body of an answer that is an error."""
    kind = TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    told = error.message
    if error.code == "context_length_exceeded":
        told = too_long(told)
    elif error.code in ("too_many_tokens", "kv_cache_full"):
        told = f"prompt is too long: {told}"  # so that clients compact here too
    return {"type": "error", "error": {"type": kind, "message": told}}


def too_long(message: str) -> str:
    """The message of `text.prompt.overflow` in the words at which clients compact."""
    maximum, counted = re.search(r"\d+", message), re.search(r"with (\d+ tokens)", message)
    most = maximum[0] if maximum else ""
    return (
        f"prompt is too long: {counted[1] if counted else f'over {most} tokens'} > {most} maximum"
    )
