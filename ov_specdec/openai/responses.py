"""Answers of /v1/responses, whole and as server-sent events."""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from ov_specdec.openai.answer import Answer, encode_event, make_metrics, new_call_id
from ov_specdec.openai.errors import ApiError, Json
from ov_specdec.openai.messages import UNENCRYPTED, ItemType
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


class ResponseAnswer(Answer[ResponsesBody]):
    """An answer, whose parts become items one after the other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number = 0
        self._output: list[Json] = []  # items that have ended
        self._open: Json | None = None
        self._given: list[str] = []  # the text of the open item
        self._read: Callable[[str], str] = str  # its arguments

    def begin(self) -> list[bytes]:
        """The events before any item."""
        return [self._changed("in_progress", name) for name in ("created", "in_progress")]

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """Note a chunk; its events."""
        self.note(index, chunk)
        return [event for part in chunk.joined_parts for event in self._add(part)]

    def end(self) -> list[bytes]:
        """The events after the last chunk: of the last item, or of an empty message."""
        begun = [] if self._output or self._open else [*self._begin({"type": "message"})]
        is_cut = self._open is not None and "call_id" in self._open
        ended = self._close("incomplete" if is_cut else self._status)
        return [*begun, *ended, self._changed(self._status)]

    def fail(self, error: ApiError) -> bytes:
        """The events that end a failed stream: some clients know only one of the two."""
        told = {"code": error.code, "message": error.message, "param": error.param}
        reason = {"code": "server_error", "message": error.message}
        return self._event("error", **told) + self._changed("failed", error=reason)

    def whole(self) -> Json:
        """The body of an answer that is not streamed, whose events are not used."""
        chunks = self.choices[0].chunks
        for part in joined(part for chunk in chunks for part in chunk.joined_parts):
            list(self._add(part))
        self.end()
        return self._response(self._status)

    def _add(self, part: parts.Part) -> Iterator[bytes]:
        """The events of the next part."""
        match part:
            case CallBegin(name, call_id):
                tool = self.request.items_of_tools[name]
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

    def _begin(self, fields: Json) -> Iterator[bytes]:
        yield from self._close("completed")
        kind = KINDS[fields["type"]]
        own = {"id": f"{kind.prefix}_{uuid4().hex}", "status": "in_progress", **kind.begun}
        item = self._open = {**own, **fields}
        self._given = []
        yield self._of_item(item, "output_item.added", item=item)
        for content in with_text(item, "", "in_progress").get("content", ()):
            yield self._of_item(item, "content_part.added", part=content)

    def _extend(self, piece: str) -> Iterator[bytes]:
        if piece and self._open is not None:
            self._given.append(piece)
            yield self._of_item(self._open, f"{KINDS[self._open['type']].event}.delta", delta=piece)

    def _close(self, status: Status) -> Iterator[bytes]:
        item, self._open = self._open, None
        if item is None:
            return
        kind, text = KINDS[item["type"]], "".join(self._given)
        done = with_text(item, text, status)
        yield self._of_item(item, f"{kind.event}.done", **{kind.field: text})
        for content in done.get("content", ()):
            yield self._of_item(item, "content_part.done", part=content)
        yield self._of_item(item, "output_item.done", item=done)
        self._output.append(done)

    @property
    def _status(self) -> Status:
        """The status of a response that has ended."""
        return "incomplete" if self.choices[0].finish_reason == "length" else "completed"

    def _response(self, status: Status, error: Json | None = None) -> Json:
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
            "output": self._output,
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

    def _of_item(self, item: Json, name: str, /, **fields: Any) -> bytes:
        """An event of an item, with these fields and those that tell its place."""
        place: Json = {"output_index": len(self._output)}
        if "item" not in fields:
            place["item_id"] = item["id"]
            if "content" in item:
                place["content_index"] = 0
            if name.startswith("output_text"):
                place["logprobs"] = []
        return self._event(f"response.{name}", **place, **fields)

    def _changed(self, status: Status, name: str = "", error: Json | None = None) -> bytes:
        """The response has this status. name: of the event, where it is another one."""
        return self._event(f"response.{name or status}", response=self._response(status, error))

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
