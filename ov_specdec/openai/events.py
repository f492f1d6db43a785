"""Server-sent events."""

import json
from collections.abc import Mapping
from typing import Any

DONE = b"data: [DONE]\n\n"


def encode_event(content: Mapping[str, Any], name: str | None = None) -> bytes:
    """An event whose data is a JSON object."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(content, ensure_ascii=False)}\n\n".encode()
