"""The items of a response, and events of them."""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from ov_specdec.openai.errors import Empty, Maybe, Part
from ov_specdec.openai.messages import UNENCRYPTED, ItemType

Status = Literal["in_progress", "completed", "incomplete"]


class Kind(NamedTuple):
    """What is known of a type of items.

    prefix: of ids. event: of the text. field: that has all of the text there. begun: fields of an
    item without text.
    """

    prefix: str
    event: str
    field: str
    begun: Mapping[str, Any]


KINDS: Mapping[ItemType, Kind] = {
    "message": Kind("msg", "output_text", "text", {"role": "assistant", "content": []}),
    "reasoning": Kind("rs", "reasoning_text", "text", {"content": [], "summary": ()}),
    "function_call": Kind("fc", "function_call_arguments", "arguments", {"arguments": ""}),
    "custom_tool_call": Kind("ctc", "custom_tool_call_input", "input", {"input": ""}),
}


class ItemContent(Part):
    """The text of a message or a reasoning."""

    type: Literal["output_text", "reasoning_text"]
    text: str
    annotations: Maybe[Empty] = None
    logprobs: Maybe[Empty] = None


class OutputItem(Part):
    """A message, a reasoning, or the call of a function or custom tool, with fields of its type.

    encrypted_content: the reasoning again, for clients that send only this back.
    """

    id: str
    type: ItemType
    status: Status
    role: Maybe[Literal["assistant"]] = None
    content: Maybe[list[ItemContent]] = None
    summary: Maybe[Empty] = None
    encrypted_content: Maybe[str] = None
    call_id: Maybe[str] = None
    name: Maybe[str] = None
    namespace: Maybe[str] = None
    arguments: Maybe[str] = None
    input: Maybe[str] = None

    def with_text(self, text: str, status: Status = "in_progress") -> "OutputItem":
        """The item with its text or arguments."""
        if self.type == "message":
            part = ItemContent(type="output_text", text=text, annotations=(), logprobs=())
            own: dict[str, Any] = {"content": [part]}
        elif self.type == "reasoning":
            part = ItemContent(type="reasoning_text", text=text)
            own = {"content": [part], "encrypted_content": f"{UNENCRYPTED}{text}"}
        else:
            own = {KINDS[self.type].field: text}
        return self.model_copy(update={"status": status, **own})


class ResponseEvent(Part):
    """Common fields of events. type: also the event's name."""

    type: str
    sequence_number: int


class ItemEvent(ResponseEvent):
    """An item, its content or its text has begun, grown or ended."""

    type: Annotated[str, Field(pattern=r"^response\.\w+\.(added|delta|done)$")]
    output_index: int
    item: Maybe[OutputItem] = None
    item_id: Maybe[str] = None
    content_index: Maybe[int] = None
    part: Maybe[ItemContent] = None
    delta: Maybe[str] = None
    text: Maybe[str] = None
    arguments: Maybe[str] = None
    input: Maybe[str] = None
    logprobs: Maybe[Empty] = None


BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
CHARACTERS = re.compile(r'(?:[^"\\]+|\\u[0-9A-Fa-f]{4}|\\[^u])*')
"""The arguments of a custom tool up to its input, and whole characters of that."""


class InputReader:
    """Reads the input of a custom tool from the pieces of its arguments."""

    def __init__(self) -> None:
        self._held, self._has_begun = "", False
        self._join = getincrementaldecoder("utf-16-le")("replace").decode  # surrogate pairs

    def push(self, piece: str) -> str:
        """The text that a piece completes."""
        self._held += piece
        if not self._has_begun and (begin := BEGIN.match(self._held)):
            self._has_begun, self._held = True, self._held[begin.end() :]
        if not self._has_begun or not (found := CHARACTERS.match(self._held)):
            return ""
        self._held = self._held[found.end() :]
        text: str = json.loads(f'"{found[0]}"', strict=False)
        return self._join(text.encode("utf-16-le", "surrogatepass"))
