"""Answers and streams of /v1/responses."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field

from ov_specdec.openai.answer import (
    Answer,
    CachedTokens,
    SpeculationMetrics,
    make_metrics,
    make_usage,
    new_call_id,
)
from ov_specdec.openai.errors import ApiError, Maybe, Part, encode_event
from ov_specdec.openai.items import KINDS, InputReader, ItemEvent, OutputItem, ResponseEvent, Status
from ov_specdec.results import parts
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text, joined


class IncompleteDetails(Part):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseError(Part):
    """Why a response has failed."""

    code: Literal["server_error"] = "server_error"
    message: str


class InputTokens(CachedTokens):
    """Tokens of a prompt that were cached before, and that this response cached."""

    cache_write_tokens: int


class ReasoningTokens(Part):
    """Always 0: those of reasoning are not counted apart."""

    reasoning_tokens: int = 0


class ResponseUsage(Part):
    """Counts of tokens of a response."""

    input_tokens: int
    input_tokens_details: InputTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens = ReasoningTokens()
    total_tokens: int


class Response(Part):
    """An answer of /v1/responses."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status | Literal["failed"]
    background: Literal[False] = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: dict[str, str | None]
    service_tier: Literal["default"] = "default"
    store: Literal[False] = False
    temperature: float | None
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: Literal[0] = 0
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None
    user: str | None
    metrics: Maybe[SpeculationMetrics] = None


class ResponseChanged(ResponseEvent):
    """The response has begun or ended."""

    type: Annotated[
        str, Field(pattern=r"^response\.(created|in_progress|completed|incomplete|failed)$")
    ]
    response: Response


class ErrorEvent(ResponseEvent):
    """The error of a response that fails."""

    type: Literal["error"] = "error"
    code: str | None
    message: str
    param: str | None


RESPONSE_EVENTS = (ResponseChanged, ItemEvent, ErrorEvent)


class StreamedResponse:
    """Turns the chunks of one answer into events, or into a body that is sent whole."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._number = 0
        self._output: list[OutputItem] = []  # items that have ended
        self._open: OutputItem | None = None
        self._given: list[str] = []  # the text of the open item
        self._read: Callable[[str], str] = str  # its arguments

    def begin(self) -> list[bytes]:
        """The events before any item."""
        response = self._response("in_progress")
        return [self._changed(name, response) for name in ("created", "in_progress")]

    def note(self, index: int, chunk: Chunk) -> None:
        """Note a chunk."""
        self._answer.choices[index].add(chunk)

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """The events of a chunk."""
        self.note(index, chunk)
        return [event for part in chunk.joined_parts for event in self._add(part)]

    def end(self) -> list[bytes]:
        """The events after the last chunk: of the last item, or of an empty message."""
        begun = [] if self._output or self._open else [*self._begin({"type": "message"})]
        is_cut = self._open is not None and self._open.call_id is not None
        ended = self._close("incomplete" if is_cut else self._status)
        return [*begun, *ended, self._changed(self._status, self._response(self._status))]

    def fail(self, error: ApiError) -> bytes:
        """The events that end a failed stream: some clients know only one of the two."""
        fields = {"code": error.code, "message": error.message, "param": error.param}
        reason = {"error": ResponseError(message=error.message)}
        response = self._response("failed").model_copy(update=reason)
        return self._event(ErrorEvent, fields) + self._changed("failed", response)

    def whole(self) -> Response:
        """The body of an answer that is not streamed, whose events are not used."""
        chunks = self._answer.choices[0].chunks
        for part in joined(part for chunk in chunks for part in chunk.joined_parts):
            list(self._add(part))
        self.end()
        return self._response(self._status)

    def _add(self, part: parts.Part) -> Iterator[bytes]:
        """The events of the next part."""
        match part:
            case CallBegin(name, call_id):
                tool = self._answer.ask.tools[name]
                self._read = InputReader().push if tool["type"] == "custom_tool_call" else str
                yield from self._begin({**tool, "call_id": call_id or new_call_id()})
            case Arguments(text):
                yield from self._extend(self._read(text))
            case CallEnd():
                yield from self._close("completed")
            case Text(text) | Reasoning(text):
                fields = {"type": "message" if isinstance(part, Text) else "reasoning"}
                if self._open is None or self._open.type != fields["type"]:
                    yield from self._begin(fields)
                yield from self._extend(text)

    def _begin(self, fields: dict[str, Any]) -> Iterator[bytes]:
        yield from self._close("completed")
        kind = KINDS[fields["type"]]
        own = {"id": f"{kind.prefix}_{uuid4().hex}", **kind.begun, **fields}
        item = self._open = OutputItem(status="in_progress", **own)
        self._given = []
        yield self._of_item(item, "output_item.added", item=item)
        for content in item.with_text("").content or ():
            yield self._of_item(item, "content_part.added", part=content)

    def _extend(self, piece: str) -> Iterator[bytes]:
        if piece and self._open is not None:
            self._given.append(piece)
            yield self._of_item(self._open, f"{KINDS[self._open.type].event}.delta", delta=piece)

    def _close(self, status: Status) -> Iterator[bytes]:
        item, self._open = self._open, None
        if item is None:
            return
        kind, text = KINDS[item.type], "".join(self._given)
        done = item.with_text(text, status)
        yield self._of_item(item, f"{kind.event}.done", **{kind.field: text})
        for content in done.content or ():
            yield self._of_item(item, "content_part.done", part=content)
        yield self._of_item(item, "output_item.done", item=done)
        self._output.append(done)

    @property
    def _status(self) -> Status:
        """The status of a response that has ended."""
        [output] = self._answer.choices
        return "incomplete" if output.finish_reason == "length" else "completed"

    def _response(self, status: Status | Literal["failed"]) -> Response:
        answer, usage = self._answer, None
        for stats in answer.stats:  # of its choice, once that has ended
            counts = make_usage(answer.ask, [stats])
            uncached = stats.prompt_tokens - stats.cached_tokens
            usage = ResponseUsage(
                input_tokens=counts.prompt_tokens,
                input_tokens_details=InputTokens(
                    cached_tokens=stats.cached_tokens, cache_write_tokens=uncached
                ),
                output_tokens=counts.completion_tokens,
                total_tokens=counts.total_tokens,
            )
        return Response(
            id=answer.id,
            created_at=answer.created,
            status=status,
            incomplete_details=IncompleteDetails() if status == "incomplete" else None,
            model=answer.model,
            output=self._output,
            usage=usage,
            metrics=make_metrics(answer.stats),
            **answer.ask.settings,
        )

    def _of_item(self, item: OutputItem, name: str, /, **fields: Any) -> bytes:
        """An event of an item, with these fields and those that tell its place."""
        place: dict[str, Any] = {"type": f"response.{name}", "output_index": len(self._output)}
        if "item" not in fields:
            content_index = None if item.content is None else 0
            scores = () if name.startswith("output_text") else None
            place |= {"item_id": item.id, "content_index": content_index, "logprobs": scores}
        return self._event(ItemEvent, place | fields)

    def _changed(self, name: str, response: Response) -> bytes:
        return self._event(ResponseChanged, {"type": f"response.{name}", "response": response})

    def _event(self, model: type[ResponseEvent], fields: dict[str, Any]) -> bytes:
        event = model(sequence_number=self._number, **fields)
        self._number += 1
        return encode_event(event, event.type)
