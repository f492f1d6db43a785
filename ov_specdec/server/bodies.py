"""Bodies of requests, within limits of size and time."""

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from ov_specdec.openai.errors import ApiError, invalid


async def read_json(request: Request, max_body: int, timeout: float) -> Any:
    """The JSON of a body. max_body: bytes. timeout: seconds in which it has to arrive.

    Only application/json is taken: a page of another site cannot send that without being asked.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise invalid(None, f"the content type is {kind!r}: it must be application/json")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_body:
        raise _too_large(max_body)
    try:
        body = await asyncio.wait_for(_read(request, max_body), timeout)
    except asyncio.TimeoutError as error:
        raise invalid(None, f"the body has not arrived within {timeout:g} s") from error
    except ClientDisconnect as error:
        raise invalid(None, "the client has left before its body was read") from error
    try:
        content = json.loads(body, parse_constant=_refuse)
        if b"\\u" in body:  # it may hold half of a surrogate pair, which no answer could repeat
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise invalid(None, f"the body is not valid JSON: {reason}") from error


async def _read(request: Request, max_body: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_body:
            raise _too_large(max_body)
    return bytes(body)


def _too_large(max_body: int) -> ApiError:
    return ApiError(413, f"the body has more than {max_body} bytes", code="request_too_large")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
