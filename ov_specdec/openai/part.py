"""Objects of answers and events, as pydantic models: they make the JSON, and describe it."""

from collections.abc import Collection
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

Maybe = Annotated[T | None, Field(exclude_if=lambda value: value is None)]
"""A field that is left out rather than null."""

Empty = tuple[()]
"""A list that is always empty here."""


class Part(BaseModel):
    """An object, with these fields and no others."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Characters that clients such as httpx treat as line ends, and JSON does not escape."""

DONE = b"data: [DONE]\n\n"


def encode_event(
    content: BaseModel, name: str | None = None, without: Collection[str] = ()
) -> bytes:
    """A server-sent event whose data is a JSON object. without: fields to leave out."""
    head = "" if name is None else f"event: {name}\n"
    data = content.model_dump_json(exclude=set(without)).translate(LINE_ENDS)
    return f"{head}data: {data}\n\n".encode()
