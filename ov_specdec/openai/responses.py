"""Answers of /v1/responses, whole and as server-sent events."""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from ov_specdec.api.answer import Answer, encode_event, make_metrics, new_call_id
from ov_specdec.api.errors import ApiError, Json
from ov_specdec.openai.items import UNENCRYPTED, ItemType
from ov_specdec.openai.requests import ResponsesBody
from ov_specdec.results import parts
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text, joined

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class Kind(NamedTuple):
    """What is known of a type of items.

    prefix: of ids. event: of the text; also the type of a content. field: that has all of the text
    there. begun: fields of an item without text.
    """

    prefix: str
    event: str
    field: str
    begun: Mapping[str, Any]


KINDS: Mapping[ItemType, Kind] = {
    "message": Kind("msg", "output_text", "text", {"role": "assistant", "content": []}),
    "reasoning": Kind("rs", "reasoning_text", "text", {"content": [], "summary": []}),
    "function_call": Kind("fc", "function_call_arguments", "arguments", {"arguments": ""}),
    "custom_tool_call": Kind("ctc", "custom_tool_call_input", "input", {"input": ""}),
}


def with_text(item: Json, text: str, status: Status) -> Json:
    """An item with its text or arguments.

    encrypted_content: the reasoning again, for clients that send only this back.
    """
    kind, more = KINDS[item["type"]], {}
    if kind.field != "text":
        return {**item, "status": status, kind.field: text}
    content: Json = {"type": kind.event, "text": text}
    if item["type"] == "message":
        content |= {"annotations": [], "logprobs": []}
    else:
        more = {"encrypted_content": f"{UNENCRYPTED}{text}"}
    return {**item, "status": status, "content": [content], **more}


class Change(NamedTuple):
    """What a part of an answer changes in its items.

    item: as it is begun or done, at this place. text: what is added to it, or all of it.
    """

    kind: Literal["begun", "added", "done"]
    place: int
    item: Json
    text: str = ""


class Items:
    """The items of a response, one after the other; the last may be open.

    tools: see `ResponsesBody.items_of_tools`. done: those that have ended.
    """

    def __init__(self, tools: Mapping[str, Json]) -> None:
        self.done: list[Json] = []
        self._tools = tools
        self._open: Json | None = None
        self._given: list[str] = []  # the text of the open item
        self._read: Callable[[str], str] = str  # its arguments

    def add(self, part: parts.Part) -> list[Change]:
        """Add the next part."""
        return [*self._add(part)]

    def end(self, status: Status) -> list[Change]:
        """End the last item, or an empty message. status: of the response, and of a message."""
        begun = [] if self.done or self._open else [*self._begin({"type": "message"})]
        is_cut = self._open is not None and "call_id" in self._open
        return [*begun, *self._close("incomplete" if is_cut else status)]

    def _add(self, part: parts.Part) -> Iterator[Change]:
        match part:
            case CallBegin(name, call_id):
                tool = self._tools[name]
                self._read = InputReader().push if tool["type"] == "custom_tool_call" else str
                yield from self._begin({**tool, "call_id": call_id or new_call_id()})
            case Arguments(text):
                yield from self._extend(self._read(text))
            case CallEnd():
                yield from self._close("completed")
            case Text(text) | Reasoning(text):
                kind = "message" if isinstance(part, Text) else "reasoning"
                if self._open is None or self._open["type"] != kind:
                    yield from self._begin({"type": kind})
                yield from self._extend(text)

    def _begin(self, fields: Json) -> Iterator[Change]:
        yield from self._close("completed")
        kind = KINDS[fields["type"]]
        own = {"id": f"{kind.prefix}_{uuid4().hex}", "status": "in_progress", **kind.begun}
        self._open, self._given = {**own, **fields}, []
        yield Change("begun", len(self.done), self._open)

    def _extend(self, piece: str) -> Iterator[Change]:
        if piece and self._open is not None:
            self._given.append(piece)
            yield Change("added", len(self.done), self._open, piece)

    def _close(self, status: Status) -> Iterator[Change]:
        item, self._open = self._open, None
        if item is not None:
            text = "".join(self._given)
            self.done.append(with_text(item, text, status))
            yield Change("done", len(self.done) - 1, self.done[-1], text)


class ResponseAnswer(Answer[ResponsesBody]):
    """An answer, whose parts become items one after the other."""

    prefix = "resp_"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number = 0
        self._items = Items(self.request.items_of_tools)

    def begin(self) -> list[bytes]:
        """The events before any item."""
        return [self._changed("in_progress", name) for name in ("created", "in_progress")]

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """Note a chunk; its events."""
        self.note(index, chunk)
        changes = (each for part in chunk.joined_parts for each in self._items.add(part))
        return [event for change in changes for event in self._events(change)]

    def end(self) -> list[bytes]:
        """The events after the last chunk: of the last item, or of an empty message."""
        changes = self._items.end(self._status)
        events = [event for change in changes for event in self._events(change)]
        return [*events, self._changed(self._status)]

    def fail(self, error: ApiError) -> bytes:
        """The events that end a failed stream: some clients know only one of the two."""
        told = {"code": error.code, "message": error.message, "param": error.param}
        reason = {"code": "server_error", "message": error.message}
        return self._event("error", **told) + self._changed("failed", error=reason)

    def whole(self) -> Json:
        """The body of an answer that is not streamed."""
        chunks, items = self.choices[0].chunks, Items(self.request.items_of_tools)
        for part in joined(part for chunk in chunks for part in chunk.joined_parts):
            items.add(part)
        items.end(self._status)
        return self._response(self._status, items.done)

    @property
    def _status(self) -> Status:
        """The status of a response that has ended."""
        return "incomplete" if self.choices[0].finish_reason == "length" else "completed"

    def _response(self, status: Status, output: Sequence[Json], error: Json | None = None) -> Json:
        options = self.request.options
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": error,
            "incomplete_details": (
                {"reason": "max_output_tokens"} if status == "incomplete" else None
            ),
            "model": self.model,
            "output": output,
            "parallel_tool_calls": options.parallel_tool_calls,
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            "temperature": options.temperature,
            "top_logprobs": 0,
            "top_p": 1.0 if options.top_p is None else options.top_p,
            "truncation": "disabled",
            "usage": self._usage(),
            **self.request.settings,
            **make_metrics(self.stats),
        }

    def _usage(self) -> Json | None:
        """Counts of tokens, once the response has ended; those of reasoning are not told apart."""
        if (stats := self.choices[0].stats) is None:
            return None
        return {
            "input_tokens": stats.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": stats.cached_tokens,
                "cache_write_tokens": stats.prompt_tokens - stats.cached_tokens,
            },
            "output_tokens": stats.generated_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": stats.prompt_tokens + stats.generated_tokens,
        }

    def _events(self, change: Change) -> Iterator[bytes]:
        """The events of a change of an item."""
        item, kind = change.item, KINDS[change.item["type"]]
        place: Json = {"output_index": change.place}
        inner = {**place, "item_id": item["id"]}
        if "content" in item:
            inner["content_index"] = 0
        scored: Json = {"logprobs": []} if kind.event == "output_text" else {}
        match change.kind:
            case "begun":
                yield self._event("response.output_item.added", **place, item=item)
                for content in with_text(item, "", "in_progress").get("content", ()):
                    yield self._event("response.content_part.added", **inner, part=content)
            case "added":
                event = f"response.{kind.event}.delta"
                yield self._event(event, **inner, **scored, delta=change.text)
            case "done":
                event = f"response.{kind.event}.done"
                yield self._event(event, **inner, **scored, **{kind.field: change.text})
                for content in item.get("content", ()):
                    yield self._event("response.content_part.done", **inner, part=content)
                yield self._event("response.output_item.done", **place, item=item)

    def _changed(self, status: Status, name: str = "", error: Json | None = None) -> bytes:
        """The response has this status. name: of the event, where it is another one."""
        response = self._response(status, self._items.done, error)
        return self._event(f"response.{name or status}", response=response)

    def _event(self, name: str, /, **fields: Any) -> bytes:
        event = {"type": name, "sequence_number": self._number, **fields}
        self._number += 1
        return encode_event(event, name)


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
