"""Requests, answers and streams of /v1/responses: text only, and nothing is stored."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ov_specdec.chunks import Chunk, GenerationResult
from ov_specdec.openai.answers import Answer, make_metrics, make_usage
from ov_specdec.openai.ask import Ask
from ov_specdec.openai.errors import ApiError
from ov_specdec.openai.events import encode_event
from ov_specdec.openai.fields import Object, Only, Positive, options_of, values, with_options
from ov_specdec.openai.messages import InputMessage, read_messages
from ov_specdec.openai.requests import GenerationBody
from ov_specdec.stats import GenerationStats


def _as_messages(given: object) -> object:
    """A text as a message of the user."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


Input = Annotated[
    list[InputMessage],
    Field(min_length=1, fail_fast=True),
    BeforeValidator(_as_messages, json_schema_input_type=str | list[InputMessage]),
]


Metadata = Annotated[dict[str, str], values(lambda text: isinstance(text, str), "a text")]


@with_options(options_of("responses"))
class ResponsesBody(GenerationBody):
    """Body of /v1/responses."""

    input: Input
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    metadata: Metadata | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: Literal["none", "auto"] | None = None
    # Not supported here.
    background: Annotated[Any, Only(False)] = None
    conversation: Annotated[Any, Only()] = None
    include: Annotated[Any, Only([])] = None
    max_tokens: Annotated[Any, Only()] = None
    max_tool_calls: Annotated[Any, Only()] = None
    previous_response_id: Annotated[Any, Only()] = None
    prompt: Annotated[Any, Only()] = None
    reasoning: Annotated[Any, Only({}, {"effort": "none"})] = None
    service_tier: Annotated[Any, Only("auto", "default")] = None
    store: Annotated[Any, Only(False)] = None
    stream_options: Annotated[Any, Only({}, {"include_obfuscation": False})] = None
    text: Annotated[Any, Only({}, {"format": {"type": "text"}})] = None
    tools: Annotated[Any, Only([])] = None
    top_logprobs: Annotated[Any, Only(0)] = None
    truncation: Annotated[Any, Only("disabled")] = None

    def ask(self, options: Object) -> Ask:
        """The parsed request."""
        options["max_new_tokens"] = self.max_output_tokens
        user = self.user or self.safety_identifier
        settings = {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "temperature": options.get("temperature"),
            "tool_choice": self.tool_choice or "auto",
            "top_p": options.get("top_p", 1.0),
            "user": user,
        }
        return Ask(
            endpoint="responses",
            model=self.model,
            prompts=(self._messages(),),
            options=options,
            stream=bool(self.stream),
            user=user,
            cache_key=self.prompt_cache_key,
            settings=settings,
        )

    def _messages(self) -> list[dict[str, Any]]:
        messages = read_messages(self.input, "input")
        if self.instructions is None:
            return messages
        return [{"role": "system", "content": self.instructions}, *messages]


def make_response(answer: Answer, result: GenerationResult) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    return _response(answer, result.text, result.finish_reason, result.stats)


class StreamedResponse:
    """Turns the chunks of one answer into events."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._number = 0
        self._texts: list[str] = []
        self._last: Chunk | None = None

    def begin(self) -> list[bytes]:
        """The events before any text."""
        response = _response(self._answer, None, None, None)
        item = _item(self._answer, None, "in_progress")
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
            self._event("response.output_item.added", output_index=0, item=item),
            self._event("response.content_part.added", **self._place, part=part),
        ]

    def add(self, index: int, chunk: Chunk) -> list[bytes]:  # noqa: ARG002
        """The events of a chunk."""
        self._last = chunk
        if not chunk.text:
            return []
        self._texts.append(chunk.text)
        delta = {"delta": chunk.text, "logprobs": []}
        return [self._event("response.output_text.delta", **self._place, **delta)]

    def end(self) -> list[bytes]:
        """The events after the last chunk."""
        text, last = "".join(self._texts), self._last
        reason, stats = (last.finish_reason, last.stats) if last else (None, None)
        response = _response(self._answer, text, reason, stats)
        item = response["output"][0]
        return [
            self._event("response.output_text.done", **self._place, text=text, logprobs=[]),
            self._event("response.content_part.done", **self._place, part=item["content"][0]),
            self._event("response.output_item.done", output_index=0, item=item),
            self._event(f"response.{response['status']}", response=response),
        ]

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream."""
        return self._event("error", code=error.code, message=error.message, param=error.param)

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": _item_id(self._answer), "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **content: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **content}
        self._number += 1
        return encode_event(event, kind)


def _response(
    answer: Answer, text: str | None, finish_reason: str | None, stats: GenerationStats | None
) -> dict[str, Any]:
    """A response object; text is None at the start."""
    is_cut = finish_reason == "length"
    status = "in_progress" if text is None else "incomplete" if is_cut else "completed"
    return {
        "id": answer.id,
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "model": answer.model,
        "output": [] if text is None else [_item(answer, text, status)],
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "text": {"format": {"type": "text"}},
        "tools": [],
        "top_logprobs": 0,
        "truncation": "disabled",
        "usage": None if stats is None else _usage(answer.ask, stats),
        **answer.ask.settings,
        **make_metrics([stats] if stats else []),
    }


def _item(answer: Answer, text: str | None, status: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": []}
    return {
        "id": _item_id(answer),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [] if text is None else [{**part, "text": text}],
    }


def _item_id(answer: Answer) -> str:
    return f"msg_{answer.id.removeprefix('resp_')}"


def _usage(ask: Ask, stats: GenerationStats) -> dict[str, Any]:
    usage = make_usage(ask, [stats])
    written = stats.prompt_tokens - stats.cached_tokens
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": written},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
