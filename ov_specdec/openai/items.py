"""The items of a response and their events, as the parts of an answer come."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple
from uuid import uuid4

from pydantic import Field
from pydantic_core import from_json

from ov_specdec.openai.answer import new_call_id
from ov_specdec.openai.errors import Empty, Maybe, Part
from ov_specdec.openai.messages import PLAIN
from ov_specdec.openai.tools import ToolName
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text

Status = Literal["in_progress", "completed", "incomplete"]


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
    type: Literal["message", "reasoning", "function_call", "custom_tool_call"]
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


class Kind(NamedTuple):
    """A kind of items. prefix: of ids. event: of its text. field: that has all of it there."""

    name: str
    prefix: str
    event: str
    field: str


MESSAGE = Kind("message", "msg", "output_text", "text")
REASONING = Kind("reasoning", "rs", "reasoning_text", "text")
CALLS = {
    "function": Kind("function_call", "fc", "function_call_arguments", "arguments"),
    "custom": Kind("custom_tool_call", "ctc", "custom_tool_call_input", "input"),
}

Event = dict[str, Any]
"""The fields of an `ItemEvent`, without its number."""


@dataclass
class OpenItem:
    """An item that grows. tool: that it calls. given: all pieces of its text or arguments."""

    kind: Kind
    index: int
    tool: ToolName | None
    call_id: str
    id: str
    given: str = ""

    @property
    def text(self) -> str:
        """The text so far; the input of a custom tool is given as part of a JSON object."""
        if self.kind is not CALLS["custom"] or not self.given:
            return self.given
        return str(from_json(self.given, allow_partial="trailing-strings").get("input", ""))

    def contents(self) -> list[ItemContent]:
        """The text as the content of a message or reasoning; calls have none."""
        if self.tool is not None:
            return []
        none = () if self.kind is MESSAGE else None
        own: dict[str, Any] = {"type": self.kind.event, "annotations": none, "logprobs": none}
        return [ItemContent(text=self.text, **own)]

    def made(self, status: Status) -> OutputItem:
        """The item as it is now."""
        own: dict[str, Any] = {"id": self.id, "type": self.kind.name, "status": status}
        if self.tool is not None:
            own |= {"name": self.tool.name, "namespace": self.tool.namespace}
            return OutputItem(**own | {"call_id": self.call_id, self.kind.field: self.text})
        own["content"] = [] if status == "in_progress" else self.contents()
        if self.kind is MESSAGE:
            return OutputItem(**own, role="assistant")
        return OutputItem(**own, summary=(), encrypted_content=f"{PLAIN}{self.text}")

    def event(self, name: str, **fields: Any) -> Event:
        """An event of the item, with these fields and those that tell its place."""
        place: Event = {"type": f"response.{name}", "output_index": self.index}
        if "item" not in fields:
            content_index = 0 if self.tool is None else None
            scores = () if name.startswith(MESSAGE.event) else None
            place |= {"item_id": self.id, "content_index": content_index, "logprobs": scores}
        return place | fields


class Items:
    """The items of a response, made while events are read.

    tools: their names by those that the model knows. done: items that have ended.
    """

    def __init__(self, tools: Mapping[str, ToolName]) -> None:
        self.done: list[OutputItem] = []
        self._tools = tools
        self._open: OpenItem | None = None

    def add(self, chunk: Chunk) -> Iterator[Event]:
        """The events of the next chunk of the answer."""
        for part in chunk.parts or (Text(chunk.text),) * bool(chunk.text):
            match part:
                case CallBegin(name, call_id):
                    tool = self._tools[name]
                    yield from self._begin(CALLS[tool.type], tool, call_id or new_call_id())
                case Arguments(text):
                    yield from self._extend(text)
                case CallEnd():
                    yield from self._close("completed")
                case Text(text) | Reasoning(text):
                    kind = MESSAGE if isinstance(part, Text) else REASONING
                    if self._open is None or self._open.kind is not kind:
                        yield from self._begin(kind)
                    yield from self._extend(text)

    def end(self, status: Status) -> Iterator[Event]:
        """The events of the end: of the last item, or of an empty message."""
        if not self.done and self._open is None:
            yield from self._begin(MESSAGE)
        is_cut = self._open is not None and self._open.tool is not None
        yield from self._close("incomplete" if is_cut else status)

    def _begin(
        self, kind: Kind, tool: ToolName | None = None, call_id: str = ""
    ) -> Iterator[Event]:
        yield from self._close("completed")
        item_id = f"{kind.prefix}_{uuid4().hex}"
        item = self._open = OpenItem(kind, len(self.done), tool, call_id, item_id)
        yield item.event("output_item.added", item=item.made("in_progress"))
        for content in item.contents():
            yield item.event("content_part.added", part=content)

    def _extend(self, piece: str) -> Iterator[Event]:
        if (item := self._open) is not None:
            before, item.given = item.text, item.given + piece
            if new := item.text[len(before) :]:
                yield item.event(f"{item.kind.event}.delta", delta=new)

    def _close(self, status: Status) -> Iterator[Event]:
        item, self._open = self._open, None
        if item is None:
            return
        yield item.event(f"{item.kind.event}.done", **{item.kind.field: item.text})
        for content in item.contents():
            yield item.event("content_part.done", part=content)
        self.done.append(item.made(status))
        yield item.event("output_item.done", item=self.done[-1])
