"""Answers of /v1/messages, whole and as server-sent events; errors in the same form."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from ov_specdec.anthropic.requests import MessagesBody
from ov_specdec.api.answer import Answer, encode_event, make_metrics, new_call_id
from ov_specdec.api.errors import ApiError, Json
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Part, Reasoning, Text, joined

SIGNATURE = "unsigned"
"""Clients reject reasoning without one, and send it back."""

TYPES_OF_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
"""By finish reason; others end a turn."""

FORMS = {Text: "text", Reasoning: "thinking", Arguments: "partial_json"}
"""The fields of pieces, by their part."""


def begin_block(part: Part) -> Json:
    """The block that begins with a part, without its text."""
    match part:
        case CallBegin(name, call_id):
            return {"type": "tool_use", "id": call_id or new_call_id(), "name": name, "input": {}}
        case Reasoning():
            return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


class MessagesAnswer(Answer[MessagesBody]):
    """A message, whose parts become blocks one after the other."""

    prefix = "msg_"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._place, self._open = -1, ""

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """Note a chunk; its events, the first of which know the length of the prompt."""
        is_first = not self.choices[index].chunks
        self.note(index, chunk)
        events = [event for part in chunk.joined_parts for event in self._add(part)]
        if not is_first:
            return events
        message = {**self._message([]), "stop_reason": None, "stop_sequence": None}
        return [self._event("message_start", message=message), *events]

    def end(self) -> list[bytes]:
        """The events after the last chunk."""
        told = self._message([])
        ending = {name: told[name] for name in ("stop_reason", "stop_sequence")}
        more = make_metrics(self.stats)
        last = self._event("message_delta", delta=ending, usage=told["usage"], **more)
        return [*self._close(), last, self._event("message_stop")]

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream."""
        return encode_event(error_body(error), "error")

    def whole(self) -> Json:
        """The body of an answer that is not streamed. A call that is cut is as far as it came."""
        content = list[Json]()
        for part in joined(part for each in self.choices[0].chunks for part in each.joined_parts):
            match part:
                case Arguments(text):
                    content[-1]["input"] = from_json(text, allow_partial="trailing-strings")
                case Text(text):
                    content.append({**begin_block(part), "text": text})
                case Reasoning(text):
                    content.append({"type": "thinking", "thinking": text, "signature": SIGNATURE})
                case CallBegin():
                    content.append(begin_block(part))
        return {**self._message(content), **make_metrics(self.stats)}

    def _add(self, part: Part) -> Iterator[bytes]:
        if isinstance(part, CallEnd):
            yield from self._close()
            return
        block = begin_block(part)
        if not isinstance(part, Arguments) and self._open != block["type"]:
            yield from self._close()
            self._place, self._open = self._place + 1, block["type"]
            yield self._event("content_block_start", index=self._place, content_block=block)
        if not isinstance(part, CallBegin):
            yield self._piece(FORMS[type(part)], part.text)

    def _close(self) -> Iterator[bytes]:
        """End the open block, if there is one."""
        if self._open == "thinking":
            yield self._piece("signature", SIGNATURE)
        if self._open:
            yield self._event("content_block_stop", index=self._place)
        self._open = ""

    def _piece(self, field: str, text: str) -> bytes:
        kind = "input_json_delta" if field == "partial_json" else f"{field}_delta"
        delta = {"type": kind, field: text}
        return self._event("content_block_delta", index=self._place, delta=delta)

    def _message(self, content: list[Json]) -> Json:
        """The message as far as it has come, with this content."""
        output, stats = self.choices[0], self.choices[0].stats
        stop, cached = (stats.stop_string, stats.cached_tokens) if stats else (None, 0)
        reason = output.finish_reason and STOP_REASONS.get(output.finish_reason, "end_turn")
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": reason if stop is None else "stop_sequence",
            "stop_sequence": stop,
            "usage": {
                "input_tokens": output.chunks[0].num_prompt_tokens - cached,
                "cache_read_input_tokens": cached,
                "cache_creation_input_tokens": 0,
                "output_tokens": stats.generated_tokens if stats else len(output.token_ids),
            },
        }

    def _event(self, name: str, /, **fields: Any) -> bytes:
        return encode_event({"type": name, **fields}, name)


def error_body(error: ApiError) -> Json:
    """The body of an answer that is an error."""
    kind = TYPES_OF_ERRORS.get(
        error.status, "api_error" if error.status >= 500 else "invalid_request_error"
    )
    told = error.message
    if error.code == "context_length_exceeded":
        told = too_long(told)
    elif error.code in ("too_many_tokens", "kv_cache_full"):
        told = f"prompt is too long: {told}"  # so that clients compact here too
    return {"type": "error", "error": {"type": kind, "message": told}}


def too_long(message: str) -> str:
    """The message of `text.prompt.overflow` in the words at which clients compact."""
    maximum, counted = re.search(r"\d+", message), re.search(r"with (\d+ tokens)", message)
    most = maximum[0] if maximum else ""
    return (
        f"prompt is too long: {counted[1] if counted else f'over {most} tokens'} > {most} maximum"
    )
