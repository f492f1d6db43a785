"""Server-sent events."""

import json
from collections.abc import Mapping
from typing import Any

LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Characters that clients such as httpx treat as line ends, and JSON does not escape."""

DONE = b"data: [DONE]\n\n"


def encode_event(content: Mapping[str, Any], name: str | None = None) -> bytes:
    """An event whose data is a JSON object."""
    head = "" if name is None else f"event: {name}\n"
    data = json.dumps(content, ensure_ascii=False).translate(LINE_ENDS)
    return f"{head}data: {data}\n\n".encode()
