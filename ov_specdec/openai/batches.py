"""Lines of OpenAI's batch files: requests as they are read, results as they are written.

Source: the request input and output objects of OpenAI's Batch API.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from ov_specdec.checks import shorten
from ov_specdec.openai.ask import Ask
from ov_specdec.openai.errors import ApiError, invalid
from ov_specdec.openai.requests import read_chat, read_completion

READERS: dict[str, Callable[[object, float | None], Ask]] = {
    "/v1/chat/completions": read_chat,
    "/v1/completions": read_completion,
}
"""What reads the body of a request, by its url."""

RESULT_ID = "batch_req_"
"""What ids of results begin with, as OpenAI's do; the digest of the request follows."""

FIELDS = ("custom_id", "method", "url", "body")


class LineError(Exception):
    """A line that is no request. code: what is wrong with it, in one word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class BatchRequest:
    """A line of a file of requests; its body is yet to be read."""

    custom_id: str
    url: str
    body: object

    def ask(self, temperature: float | None = 1.0) -> Ask:
        """What the body asks for; `ApiError` where it cannot be honoured.

        temperature: what an omitted one is; None leaves it to the pipeline.
        """
        ask = READERS[self.url](self.body, temperature)
        if ask.stream:
            raise invalid("stream", "stream=true has no effect in a batch: leave it out")
        return ask


def read_request(line: bytes) -> BatchRequest:
    """The request in a line: {"custom_id", "method": "POST", "url", "body"}; raises `LineError`."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError("invalid_json", f"the line is no JSON: {error}") from error
    if not isinstance(content, Mapping):
        raise LineError("invalid_request", f"the line is {shorten(content)}: give a JSON object")
    custom_id, method, url, body = (content.get(name) for name in FIELDS)
    if not isinstance(custom_id, str) or not custom_id:
        complaint = f"custom_id={shorten(custom_id)} must be a text, not empty"
        raise LineError("invalid_custom_id", complaint)
    if method != "POST":
        raise LineError("invalid_method", f"method={shorten(method)} must be 'POST'")
    if not isinstance(url, str) or url not in READERS:
        raise LineError("invalid_url", f"url={shorten(url)} must be {' or '.join(READERS)}")
    for name in content:
        if name not in FIELDS:
            raise LineError("invalid_request", f"{shorten(name)} is no field of a request")
    return BatchRequest(custom_id, url, body)


def make_result(
    custom_id: str, digest: str, status_code: int, body: dict[str, Any]
) -> dict[str, Any]:
    """The result of a request: the answer to it, or `ApiError.body`. digest: of the request."""
    response = {"status_code": status_code, "request_id": f"req_{uuid4().hex}", "body": body}
    result_id = f"{RESULT_ID}{digest}"
    return {"id": result_id, "custom_id": custom_id, "response": response, "error": None}


def make_failure(custom_id: str, digest: str, error: ApiError) -> dict[str, Any]:
    """The result of a request that failed."""
    return make_result(custom_id, digest, error.status, error.body())


def make_line_failure(number: int, error: LineError) -> dict[str, Any]:
    """The result of a line that is no request. number: of the line, from 1."""
    complaint = {"code": error.code, "message": str(error), "line": number}
    result_id = f"{RESULT_ID}{uuid4().hex}"
    return {"id": result_id, "custom_id": None, "response": None, "error": complaint}
