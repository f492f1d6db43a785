"""The items of a response and their events, as the parts of an answer come."""

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


class ItemChanged(ResponseEvent):
    """An item has begun or ended."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItem


class ItemEvent(ResponseEvent):
    """New text of an item, all of its text, or the beginning or end of its content."""

    type: Literal[
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
    item_id: str
    output_index: int
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

Change = tuple[type[ResponseEvent], dict[str, Any]]
"""An event without its number."""


@dataclass
class OpenItem:
    """An item that grows.

    tool: that it calls. text: so far. raw: the JSON object that has the text of a custom tool.
    """

    kind: Kind
    index: int
    tool: ToolName | None
    call_id: str
    text: str = ""
    raw: str = ""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = f"{self.kind.prefix}_{uuid4().hex}"

    def begin(self) -> list[Change]:
        """The events before its text."""
        return [self._changed("added", self.made("in_progress")), *self._content("added")]

    def add(self, piece: str) -> list[Change]:
        """The events of a piece of its text, or of the JSON that has it."""
        before = self.text
        if self.kind is CALLS["custom"]:
            self.raw += piece
            self.text = from_json(self.raw, allow_partial="trailing-strings").get("input", "")
        else:
            self.text += piece
        new = self.text[len(before) :]
        return [self._of_text("delta", delta=new)] if new else []

    def end(self, item: OutputItem) -> list[Change]:
        """The events after its text. item: as it is then."""
        done = self._of_text("done", **{self.kind.field: self.text})
        return [done, *self._content("done"), self._changed("done", item)]

    def made(self, status: Status, keeps_reasoning: bool = False) -> OutputItem:
        """The item as it is now."""
        own: dict[str, Any] = {"id": self.id, "type": self.kind.name, "status": status}
        if self.tool is not None:
            own |= {"name": self.tool.name, "namespace": self.tool.namespace}
            own |= {"call_id": self.call_id, self.kind.field: self.text}
            return CallItem(**own)
        has_text = status != "in_progress"
        if self.kind is MESSAGE:
            return OutputMessage(**own, content=[OutputText(text=self.text)] * has_text)
        kept = f"{PLAIN}{self.text}" if keeps_reasoning else None
        content = [ReasoningText(text=self.text)] * has_text
        return ReasoningItem(**own, content=content, encrypted_content=kept)

    def _changed(self, end: str, item: OutputItem) -> Change:
        kind = f"response.output_item.{end}"
        return ItemChanged, {"type": kind, "output_index": self.index, "item": item}

    def _content(self, end: str) -> list[Change]:
        """The event of the beginning or end of a content, if there is one."""
        content = self.kind.content
        if content is None:
            return []
        return [self._event(f"content_part.{end}", part=content(text=self.text))]

    def _of_text(self, end: str, **fields: str) -> Change:
        logprobs = () if self.kind is MESSAGE else None
        return self._event(f"{self.kind.event}.{end}", logprobs=logprobs, **fields)

    def _event(self, name: str, **fields: Any) -> Change:
        place = {"item_id": self.id, "output_index": self.index}
        content_index = None if self.kind.content is None else 0
        fields |= {"type": f"response.{name}", "content_index": content_index}
        return ItemEvent, fields | place


class Items:
    """The items of a response. done: those that have ended."""

    def __init__(self, ask: Ask) -> None:
        self.done: list[OutputItem] = []
        self._ask = ask
        self._open: OpenItem | None = None

    def add(self, part: parts.Part) -> list[Change]:
        """The events of the next part of the answer."""
        match part:
            case parts.CallBegin(name, call_id):
                tool = self._ask.tools[name]
                return self._begin(CALLS[tool.type], tool, call_id or new_call_id())
            case parts.CallEnd():
                return self._close("completed")
            case parts.Arguments(text):
                kind = None
            case parts.Text(text):
                kind = MESSAGE
            case parts.Reasoning(text):
                kind = REASONING
        begun = []
        if kind is not None and (self._open is None or self._open.kind is not kind):
            begun = self._begin(kind)
        return [*begun, *(self._open.add(text) if self._open else ())]

    def end(self, status: Status) -> list[Change]:
        """The events of the end: of the last item, or of an empty message."""
        begun = [] if self.done or self._open else self._begin(MESSAGE)
        is_cut = self._open is not None and self._open.tool is not None
        return [*begun, *self._close("incomplete" if is_cut else status)]

    def _begin(self, kind: Kind, tool: ToolName | None = None, call_id: str = "") -> list[Change]:
        ended = self._close("completed")
        self._open = OpenItem(kind, len(self.done), tool, call_id)
        return [*ended, *self._open.begin()]

    def _close(self, status: Status) -> list[Change]:
        item, self._open = self._open, None
        if item is None:
            return []
        self.done.append(item.made(status, self._ask.keeps_reasoning))
        return item.end(self.done[-1])
