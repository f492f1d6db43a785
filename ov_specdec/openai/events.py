"""Server-sent events."""

from collections.abc import Collection

from pydantic import BaseModel

LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Characters that clients such as httpx treat as line ends, and JSON does not escape."""

DONE = b"data: [DONE]\n\n"


def encode_event(
    content: BaseModel, name: str | None = None, without: Collection[str] = ()
) -> bytes:
    """An event whose data is a JSON object. without: fields to leave out."""
    head = "" if name is None else f"event: {name}\n"
    data = content.model_dump_json(exclude=set(without)).translate(LINE_ENDS)
    return f"{head}data: {data}\n\n".encode()
