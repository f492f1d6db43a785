"""Errors in OpenAI's form."""

from ov_specdec.api.errors import FIELDS, ApiError, Json

FIELDS_OF_CHOICES = {
    **FIELDS,
    **dict.fromkeys(("json_object", "json_schema"), "response_format"),
    "max_new_tokens": "max_tokens",
    "prompt_logprobs": "echo",
    "reference_texts": "prediction",
}
"""Fields by their option, of chat completions and completions."""

FIELDS_OF_RESPONSES = {
    **FIELDS,
    **dict.fromkeys(("json_object", "json_schema"), "text.format"),
    "max_new_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
}


def error_body(error: ApiError) -> Json:
    """The body of an answer that is an error."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    if error.status == 429:
        kind = "rate_limit_error"
    told = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return {"error": told}
