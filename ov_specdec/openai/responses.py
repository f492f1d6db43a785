"""Answers and streams of /v1/responses."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from ov_specdec.openai.answer import (
    Answer,
    CachedTokens,
    SpeculationMetrics,
    make_metrics,
    make_usage,
)
from ov_specdec.openai.errors import ApiError, Empty, Maybe, Part, encode_event
from ov_specdec.openai.structured import FormatType
from ov_specdec.results.chunks import Chunk

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


class IncompleteDetails(Part):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class Reasoning(Part):
    """Always empty: there is no reasoning."""

    effort: None = None
    summary: None = None


class GivenFormat(Part):
    """The format of a response's text, as it was requested."""

    model_config = ConfigDict(serialize_by_alias=True)

    type: FormatType
    name: Maybe[str] = None
    description: Maybe[str] = None
    strict: Maybe[bool] = None
    content: Maybe[dict[str, Any]] = Field(None, alias="schema")


class TextSettings(Part):
    """Settings of the text of a response."""

    format: GivenFormat


class InputTokens(CachedTokens):
    """Tokens of a prompt that were cached before, and that this response cached."""

    cache_write_tokens: int


class ReasoningTokens(Part):
    """Always 0."""

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
    status: Status
    background: Literal[False] = False
    error: None = None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputMessage]
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: Reasoning = Reasoning()
    service_tier: Literal["default"] = "default"
    store: Literal[False] = False
    temperature: float | None
    text: TextSettings
    tool_choice: Literal["none", "auto"]
    tools: Empty = ()
    top_logprobs: Literal[0] = 0
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None
    user: str | None
    metrics: Maybe[SpeculationMetrics] = None


class ResponseEvent(Part):
    """Common fields of events. type: also the event's name."""

    type: str
    sequence_number: int


class ResponseChanged(ResponseEvent):
    """The response has begun or ended."""

    type: Literal[
        "response.created", "response.in_progress", "response.completed", "response.incomplete"
    ]
    response: Response


class ItemChanged(ResponseEvent):
    """The message of the response has begun or ended."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int = 0
    item: OutputMessage


class ContentEvent(ResponseEvent):
    """An event of the text of the message."""

    item_id: str
    output_index: int = 0
    content_index: int = 0


class PartChanged(ContentEvent):
    """The text has begun or ended."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputText


class OutputTextDelta(ContentEvent):
    """New text of the message."""

    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    delta: str
    logprobs: Empty = ()


class OutputTextDone(ContentEvent):
    """The complete text."""

    type: Literal["response.output_text.done"] = "response.output_text.done"
    text: str
    logprobs: Empty = ()


class ResponseFailed(ResponseEvent):
    """The response has failed."""

    type: Literal["error"] = "error"
    code: str | None
    message: str
    param: str | None


RESPONSE_EVENTS = (
    ResponseChanged,
    ItemChanged,
    PartChanged,
    OutputTextDelta,
    OutputTextDone,
    ResponseFailed,
)


class StreamedResponse:
    """Turns the chunks of one answer into events, or into a body that is sent whole."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._item_id = f"msg_{answer.id.removeprefix('resp_')}"
        self._number = 0

    def begin(self) -> list[bytes]:
        """The events before any text."""
        response = self._response("in_progress", [])
        item = OutputMessage(id=self._item_id, status="in_progress", content=[])
        part = OutputText(text="")
        return [
            self._event(ResponseChanged, type="response.created", response=response),
            self._event(ResponseChanged, type="response.in_progress", response=response),
            self._event(ItemChanged, type="response.output_item.added", item=item),
            self._content(PartChanged, type="response.content_part.added", part=part),
        ]

    def note(self, index: int, chunk: Chunk) -> None:
        """Note a chunk."""
        self._answer.choices[index].add(chunk)

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """The events of a chunk."""
        self.note(index, chunk)
        return [self._content(OutputTextDelta, delta=chunk.text)] if chunk.text else []

    def end(self) -> list[bytes]:
        """The events after the last chunk."""
        response = self.whole()
        [item] = response.output
        [part] = item.content
        return [
            self._content(OutputTextDone, text=part.text),
            self._content(PartChanged, type="response.content_part.done", part=part),
            self._event(ItemChanged, type="response.output_item.done", item=item),
            self._event(ResponseChanged, type=f"response.{response.status}", response=response),
        ]

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream."""
        fields = {"code": error.code, "message": error.message, "param": error.param}
        return self._event(ResponseFailed, **fields)

    def whole(self) -> Response:
        """The body of an answer that is not streamed."""
        [output] = self._answer.choices
        status: Status = "incomplete" if output.finish_reason == "length" else "completed"
        content = [OutputText(text=output.text)]
        return self._response(
            status, [OutputMessage(id=self._item_id, status=status, content=content)]
        )

    def _response(self, status: Status, output: list[OutputMessage]) -> Response:
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
            output=output,
            usage=usage,
            metrics=make_metrics(answer.stats),
            **answer.ask.settings,
        )

    def _content(self, kind: type[ContentEvent], **fields: Any) -> bytes:
        return self._event(kind, item_id=self._item_id, **fields)

    def _event(self, kind: type[ResponseEvent], **fields: Any) -> bytes:
        event = kind(sequence_number=self._number, **fields)
        self._number += 1
        return encode_event(event, event.type)
