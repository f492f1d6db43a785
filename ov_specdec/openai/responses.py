"""Requests, answers and streams of /v1/responses: text in, text out, and nothing is stored."""

from collections.abc import Mapping
from typing import Any

from ov_specdec.chunks import Chunk, GenerationResult
from ov_specdec.errors import shorten
from ov_specdec.openai.answers import Answer, make_metrics, make_usage
from ov_specdec.openai.ask import Ask
from ov_specdec.openai.errors import ApiError, invalid
from ov_specdec.openai.events import encode_event
from ov_specdec.openai.fields import Fields
from ov_specdec.openai.requests import (
    limit_tokens,
    read_messages,
    read_options,
    read_template_options,
)
from ov_specdec.stats import GenerationStats

OF_ANSWERS = ("annotations", "id", "logprobs", "status", "type")
"""What an answer that is sent back as input holds beside its text; it says nothing to a model."""

RESPONSE_NEUTRAL = {
    "background": (False,),
    "include": ([],),
    "parallel_tool_calls": (True, False),
    "reasoning": ({}, {"effort": "none"}),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "stream_options": ({}, {"include_obfuscation": False}),
    "text": ({}, {"format": {"type": "text"}}),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Fields without a counterpart here, and their values that change nothing."""


def read_responses(body: object, temperature: float | None = 1.0) -> Ask:
    """The body of /v1/responses; `ApiError` for what cannot be honoured.

    temperature: what an omitted one is; None leaves it to the pipeline.
    """
    fields = Fields(body)
    instructions = fields.text("instructions")
    system = [] if instructions is None else [{"role": "system", "content": instructions}]
    messages = [*system, *_read_input(fields.get("input"))]
    options = read_options(fields, temperature)
    max_tokens = fields.integer("max_output_tokens", low=1)
    limit_tokens(options, "max_output_tokens", max_tokens)
    options.update(read_template_options(fields))
    user = fields.text("user") or fields.text("safety_identifier")
    settings = {
        "instructions": instructions,
        "max_output_tokens": max_tokens,
        "metadata": _read_metadata(fields),
        "parallel_tool_calls": fields.get("parallel_tool_calls") is not False,
        "temperature": options.get("temperature"),
        "tool_choice": fields.get("tool_choice") or "auto",
        "top_p": options.get("top_p", 1.0),
        "user": user,
    }
    ask = Ask(
        endpoint="responses",
        model=fields.text("model"),
        prompts=(messages,),
        options=options,
        stream=fields.flag("stream"),
        user=user,
        settings=settings,
    )
    fields.neutral(**RESPONSE_NEUTRAL)
    fields.finish()
    return ask


def make_response(answer: Answer, result: GenerationResult) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    return _response(answer, result.text, result.finish_reason, result.stats)


class StreamedResponse:
    """The events of one answer, as its chunks come."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._number = 0
        self._texts: list[str] = []
        self._last: Chunk | None = None

    def begin(self) -> list[bytes]:
        """What comes before any text."""
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
        """A chunk of the answer."""
        self._last = chunk
        if not chunk.text:
            return []
        self._texts.append(chunk.text)
        delta = {"delta": chunk.text, "logprobs": []}
        return [self._event("response.output_text.delta", **self._place, **delta)]

    def end(self) -> list[bytes]:
        """What comes after the last chunk."""
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
        """What ends a stream that cannot go on."""
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
    """A response object; text is None while nothing has come yet."""
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
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }


def _read_input(given: Any) -> list[dict[str, Any]]:
    """A text, or messages, as messages."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise invalid("input", f"input={shorten(given)} must be a text or a list, not empty")
    return read_messages([_read_item(index, item) for index, item in enumerate(given)], "input")


def _read_item(index: int, item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping) or item.get("type", "message") != "message":
        raise invalid("input", f"input[{index}]={shorten(item)} is not supported: give messages")
    return {name: value for name, value in item.items() if name not in OF_ANSWERS}


def _read_metadata(fields: Fields) -> dict[str, Any]:
    """What the answer repeats."""
    metadata = fields.mapping("metadata") or {}
    if not all(isinstance(value, str) for value in metadata.values()):
        raise invalid("metadata", f"metadata={shorten(metadata)} must map names to texts")
    return metadata
