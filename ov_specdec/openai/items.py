"""The items of a response and their events, as the parts of an answer come."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from pydantic_core import from_json

from ov_specdec.openai.answer import Ask, new_call_id
from ov_specdec.openai.errors import Empty, Maybe, Part
from ov_specdec.openai.messages import PLAIN
from ov_specdec.openai.tools import ToolName
from ov_specdec.results import parts

Status = Literal["in_progress", "completed", "incomplete"]


class OutputText(Part):
    """The text of a response."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: Empty = ()
    logprobs: Empty = ()


class OutputMessage(Part):
    """The message of a response."""

    id: str
    type: Literal["message"] = "message"
    status: Status
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class ReasoningText(Part):
    """The text of a reasoning."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class ReasoningItem(Part):
    """What a model reasoned. encrypted_content: if requested, and not encrypted."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    status: Status
    summary: Empty = ()
    content: list[ReasoningText]
    encrypted_content: Maybe[str] = None


class CallItem(Part):
    """The call of a function or custom tool. call_id: as its output has it."""

    id: str
    type: Literal["function_call", "custom_tool_call"]
    status: Status
    call_id: str
    name: str
    namespace: Maybe[str] = None
    arguments: Maybe[str] = None
    input: Maybe[str] = None


OutputItem = OutputMessage | ReasoningItem | CallItem


class ResponseEvent(Part):
    """Common fields of events. type: also the event's name."""

    type: str
    sequence_number: int


class ItemEvent(ResponseEvent):
    """An item, its content or its text has begun, grown or ended."""

    type: Literal[
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
    ]
    output_index: int
    item: Maybe[OutputItem] = None
    item_id: Maybe[str] = None
    content_index: Maybe[int] = None
    part: Maybe[OutputText | ReasoningText] = None
    delta: Maybe[str] = None
    text: Maybe[str] = None
    arguments: Maybe[str] = None
    input: Maybe[str] = None
    logprobs: Maybe[Empty] = None


class Kind(NamedTuple):
    """A kind of items.

    name: their type. prefix: of ids. event: of its text. field: that has all of it there. content:
    of a message or reasoning.
    """

    name: str
    prefix: str
    event: str
    field: str
    content: type[OutputText | ReasoningText] | None = None


MESSAGE = Kind("message", "msg", "output_text", "text", OutputText)
REASONING = Kind("reasoning", "rs", "reasoning_text", "text", ReasoningText)
CALLS = {
    "function": Kind("function_call", "fc", "function_call_arguments", "arguments"),
    "custom": Kind("custom_tool_call", "ctc", "custom_tool_call_input", "input"),
}


Event = dict[str, Any]
"""The fields of an `ItemEvent`, without its number."""


@dataclass
class OpenItem:
    """An item that grows. tool: that it calls. text: so far. raw: JSON that has it."""

    kind: Kind
    index: int
    tool: ToolName | None
    call_id: str
    text: str = ""
    raw: str = ""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = f"{self.kind.prefix}_{uuid4().hex}"

    def add(self, piece: str) -> str:
        """Add to the text, or to the JSON object that has that of a custom tool; what is new."""
        before = self.text
        if self.kind is CALLS["custom"]:
            self.raw += piece
            self.text = from_json(self.raw, allow_partial="trailing-strings").get("input", "")
        else:
            self.text += piece
        return self.text[len(before) :]

    def made(self, status: Status, keeps_reasoning: bool = False) -> OutputItem:
        """The item as it is now."""
        own: dict[str, Any] = {"id": self.id, "type": self.kind.name, "status": status}
        if self.tool is not None:
            own |= {"name": self.tool.name, "namespace": self.tool.namespace}
            return CallItem(**own | {"call_id": self.call_id, self.kind.field: self.text})
        has_text = status != "in_progress"
        if self.kind is MESSAGE:
            return OutputMessage(**own, content=[OutputText(text=self.text)] * has_text)
        kept = f"{PLAIN}{self.text}" if keeps_reasoning else None
        content = [ReasoningText(text=self.text)] * has_text
        return ReasoningItem(**own, content=content, encrypted_content=kept)

    def event(self, name: str, **fields: Any) -> Event:
        """An event of the item, with these fields and those that tell its place."""
        place: Event = {"type": f"response.{name}", "output_index": self.index}
        if "item" not in fields:
            content_index = None if self.kind.content is None else 0
            scores = () if name.startswith(MESSAGE.event) else None
            place |= {"item_id": self.id, "content_index": content_index, "logprobs": scores}
        return place | fields


class Items:
    """The items of a response, made while events are read. done: those that have ended."""

    def __init__(self, ask: Ask) -> None:
        self.done: list[OutputItem] = []
        self._ask = ask
        self._open: OpenItem | None = None

    def add(self, part: parts.Part) -> Iterator[Event]:
        """The events of the next part of the answer."""
        match part:
            case parts.CallBegin(name, call_id):
                tool = self._ask.tools[name]
                yield from self._begin(CALLS[tool.type], tool, call_id or new_call_id())
            case parts.Arguments(text):
                yield from self._extend(text)
            case parts.CallEnd():
                yield from self._close("completed")
            case parts.Text(text) | parts.Reasoning(text):
                kind = MESSAGE if isinstance(part, parts.Text) else REASONING
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
        item = self._open = OpenItem(kind, len(self.done), tool, call_id)
        yield item.event("output_item.added", item=item.made("in_progress"))
        if kind.content is not None:
            yield item.event("content_part.added", part=kind.content(text=""))

    def _extend(self, piece: str) -> Iterator[Event]:
        item = self._open
        if item is not None and (new := item.add(piece)):
            yield item.event(f"{item.kind.event}.delta", delta=new)

    def _close(self, status: Status) -> Iterator[Event]:
        item, self._open = self._open, None
        if item is None:
            return
        kind = item.kind
        yield item.event(f"{kind.event}.done", **{kind.field: item.text})
        if kind.content is not None:
            yield item.event("content_part.done", part=kind.content(text=item.text))
        self.done.append(item.made(status, self._ask.keeps_reasoning))
        yield item.event("output_item.done", item=self.done[-1])
