"""The items of a response and their events, as the parts of an answer come."""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple
from uuid import uuid4

from pydantic import Field

from ov_specdec.openai.answer import new_call_id
from ov_specdec.openai.errors import Empty, Maybe, Part
from ov_specdec.openai.messages import PLAIN, ItemType
from ov_specdec.openai.tools import ToolName
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text

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
            own = {"content": [part], "encrypted_content": f"{PLAIN}{text}"}
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


Event = dict[str, Any]
"""The fields of an `ItemEvent`, without its number."""

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


class Items:
    """The items of a response, made while events are read.

    tools: their names by those that the model knows. done: items that have ended.
    """

    def __init__(self, tools: Mapping[str, ToolName]) -> None:
        self.done: list[OutputItem] = []
        self._tools = tools
        self._open: OutputItem | None = None
        self._given: list[str] = []  # the text of the open item
        self._read: Callable[[str], str] = str  # arguments

    def add(self, chunk: Chunk) -> Iterator[Event]:
        """The events of the next chunk of the answer."""
        for part in chunk.joined_parts:
            match part:
                case CallBegin(name, call_id):
                    tool = self._tools[name]
                    self._read = str if tool.type == "function_call" else InputReader().push
                    own = {"name": tool.name, "namespace": tool.namespace}
                    yield from self._begin(tool.type, call_id=call_id or new_call_id(), **own)
                case Arguments(text):
                    yield from self._extend(self._read(text))
                case CallEnd():
                    yield from self._close("completed")
                case Text(text) | Reasoning(text):
                    kind: ItemType = "message" if isinstance(part, Text) else "reasoning"
                    if self._open is None or self._open.type != kind:
                        yield from self._begin(kind)
                    yield from self._extend(text)

    def end(self, status: Status) -> Iterator[Event]:
        """The events of the end: of the last item, or of an empty message."""
        if not self.done and self._open is None:
            yield from self._begin("message")
        is_cut = self._open is not None and self._open.call_id is not None
        yield from self._close("incomplete" if is_cut else status)

    def _begin(self, kind: ItemType, **fields: Any) -> Iterator[Event]:
        yield from self._close("completed")
        own = {"id": f"{KINDS[kind].prefix}_{uuid4().hex}", **KINDS[kind].begun, **fields}
        item = self._open = OutputItem(type=kind, status="in_progress", **own)
        self._given = []
        yield self._event(item, "output_item.added", item=item)
        for content in item.with_text("").content or ():
            yield self._event(item, "content_part.added", part=content)

    def _extend(self, piece: str) -> Iterator[Event]:
        if piece and self._open is not None:
            self._given.append(piece)
            yield self._event(self._open, f"{KINDS[self._open.type].event}.delta", delta=piece)

    def _close(self, status: Status) -> Iterator[Event]:
        item, self._open = self._open, None
        if item is None:
            return
        kind, text = KINDS[item.type], "".join(self._given)
        done = item.with_text(text, status)
        yield self._event(item, f"{kind.event}.done", **{kind.field: text})
        for content in done.content or ():
            yield self._event(item, "content_part.done", part=content)
        yield self._event(item, "output_item.done", item=done)
        self.done.append(done)

    def _event(self, item: OutputItem, name: str, /, **fields: Any) -> Event:
        """An event of an item, with these fields and those that tell its place."""
        place: Event = {"type": f"response.{name}", "output_index": len(self.done)}
        if "item" not in fields:
            content_index = None if item.content is None else 0
            scores = () if name.startswith("output_text") else None
            place |= {"item_id": item.id, "content_index": content_index, "logprobs": scores}
        return place | fields
