"""Answers and streams of /v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ov_specdec.openai.answer import (
    Answer,
    CachedTokens,
    SpeculationMetrics,
    make_metrics,
    make_usage,
)
from ov_specdec.openai.errors import ApiError, Maybe, Part, encode_event
from ov_specdec.openai.items import ItemEvent, Items, OutputItem, ResponseEvent, Status
from ov_specdec.results.chunks import Chunk


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
        self._items = Items(answer.ask.tools)
        self._number = 0

    def begin(self) -> list[bytes]:
        """The events before any item."""
        response = self._response("in_progress")
        return [self._changed(kind, response) for kind in ("created", "in_progress")]

    def note(self, index: int, chunk: Chunk) -> None:
        """Note a chunk."""
        self._answer.choices[index].add(chunk)

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """The events of a chunk."""
        self.note(index, chunk)
        return [self._event(ItemEvent, event) for event in self._items.add(chunk)]

    def end(self) -> list[bytes]:
        """The events after the last chunk."""
        events = [self._event(ItemEvent, event) for event in self._items.end(self._status)]
        return [*events, self._changed(self._status, self._response(self._status))]

    def fail(self, error: ApiError) -> bytes:
        """The events that end a failed stream: some clients know only one of the two."""
        fields = {"code": error.code, "message": error.message, "param": error.param}
        reason = {"error": ResponseError(message=error.message)}
        response = self._response("failed").model_copy(update=reason)
        return self._event(ErrorEvent, fields) + self._changed("failed", response)

    def whole(self) -> Response:
        """The body of an answer that is not streamed."""
        for chunk in self._answer.choices[0].chunks:
            list(self._items.add(chunk))
        list(self._items.end(self._status))
        return self._response(self._status)

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
            output=self._items.done,
            usage=usage,
            metrics=make_metrics(answer.stats),
            **answer.ask.settings,
        )

    def _changed(self, name: str, response: Response) -> bytes:
        return self._event(ResponseChanged, {"type": f"response.{name}", "response": response})

    def _event(self, model: type[ResponseEvent], fields: dict[str, Any]) -> bytes:
        event = model(sequence_number=self._number, **fields)
        self._number += 1
        return encode_event(event, event.type)
