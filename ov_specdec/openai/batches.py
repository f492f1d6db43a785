"""Lines of OpenAI's batch files: parse requests, and make results.

Source: the request input and output objects of OpenAI's Batch API.
"""

import json
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ov_specdec.openai.answer import Ask
from ov_specdec.openai.body import Rules, explain
from ov_specdec.openai.errors import Part, invalid
from ov_specdec.openai.requests import ChatBody, CompletionBody, GenerationBody, read_ask

BODIES: dict[str, type[GenerationBody]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
}
"""The type of a request's body, by its url."""

RESULT_ID = "batch_req_"
"""Prefix of the ids of results, as in OpenAI's."""


class LineError(Exception):
    """A line is not a request. code: the reason in one word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BatchRequest(BaseModel):
    """A line of a file of requests, with its body unparsed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    custom_id: Annotated[str, Field(min_length=1)]
    method: Literal["POST"]
    url: Literal["/v1/chat/completions", "/v1/completions"]
    body: Any = None

    def ask(self, rules: Rules | None = None) -> Ask:
        """Parse the body; `ApiError` for invalid or unsupported fields."""
        ask = read_ask(BODIES[self.url], self.body, rules)
        if ask.stream:
            raise invalid("stream", "stream=true has no effect in a batch: leave it out")
        return ask


def read_request(line: bytes) -> BatchRequest:
    """The request in a line: {"custom_id", "method": "POST", "url", "body"}; raises `LineError`."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError("invalid_json", f"the line is not JSON: {error}") from error
    try:
        return BatchRequest.model_validate(content)
    except ValidationError as error:
        path, message, kind = explain(error)
        code = "request" if kind in ("extra_forbidden", "model_type") else path
        raise LineError(f"invalid_{code}", message) from error


def make_result(custom_id: str, status_code: int, body: Part) -> dict[str, Any]:
    """The result of a request: the answer to it, or `ApiError.body`."""
    request_id = f"req_{uuid4().hex}"
    response = {"status_code": status_code, "request_id": request_id, "body": body.model_dump()}
    result_id = f"{RESULT_ID}{uuid4().hex}"
    return {"id": result_id, "custom_id": custom_id, "response": response, "error": None}


def make_line_failure(number: int, error: LineError) -> dict[str, Any]:
    """The result of an invalid line. number: of the line, from 1."""
    complaint = {"code": error.code, "message": str(error), "line": number}
    result_id = f"{RESULT_ID}{uuid4().hex}"
    return {"id": result_id, "custom_id": None, "response": None, "error": complaint}
