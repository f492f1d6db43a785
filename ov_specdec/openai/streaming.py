"""Streams of /v1/chat/completions and /v1/completions: turn chunks into server-sent events."""

from typing import Any

from ov_specdec.chunks import Chunk
from ov_specdec.openai.answers import (
    Answer,
    TextOffsets,
    chat_logprobs,
    completion_logprobs,
    make_metrics,
    make_usage,
)
from ov_specdec.openai.errors import ApiError
from ov_specdec.openai.events import DONE, encode_event
from ov_specdec.stats import GenerationStats

OBJECTS = {"chat": "chat.completion.chunk", "completions": "text_completion"}


class StreamedCompletion:
    """Turns the chunks of the choices of one answer into events."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._is_chat = answer.ask.endpoint == "chat"
        self._offsets = [TextOffsets() for _ in range(answer.ask.num_choices)]
        self._stats: dict[int, GenerationStats] = {}
        self._num_generated = [0] * answer.ask.num_choices

    def begin(self) -> list[bytes]:
        """The events before any text: the role of a message, and the prompt with `echo`."""
        answer, events = self._answer, []
        for index in range(len(self._offsets)):
            if self._is_chat:
                delta = {"role": "assistant", "content": "", "refusal": None}
                events.append(self._event({"index": index, "delta": delta, **NOT_YET}))
            elif answer.ask.echo and answer.ask.logprobs is None:
                text = answer.prompt_text(index)
                events.append(self._event({"index": index, "text": text, **NOT_YET}))
        return events

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """The events of a chunk of the choice with this index."""
        if chunk.stats is not None:
            self._stats[index] = chunk.stats
        self._num_generated[index] += len(chunk.token_ids)
        says_nothing = not chunk.text and not chunk.logprobs and not chunk.prompt_logprobs
        if says_nothing and chunk.finish_reason is None:
            return []
        origin = {"origin": chunk.origin} if self._answer.ask.origins else {}
        text = self._chat_piece if self._is_chat else self._completion_piece
        piece = {"index": index, **text(index, chunk), **origin}
        return [self._event(piece, self._usage(index, chunk))]

    def end(self) -> list[bytes]:
        """The events after the last chunk."""
        ask = self._answer.ask
        if not ask.include_usage:
            return [DONE]
        stats = [self._stats[index] for index in range(len(self._offsets))]
        last = {
            **self._answer.head(OBJECTS[ask.endpoint]),
            "choices": [],
            "usage": make_usage(ask, stats),
            **make_metrics(stats),
        }
        return [encode_event(last), DONE]

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream, without [DONE]."""
        return encode_event(error.body())

    def _event(self, choice: dict[str, Any], usage: dict[str, int] | None = None) -> bytes:
        answer = self._answer
        counts = {"usage": usage} if answer.ask.include_usage else {}
        head = answer.head(OBJECTS[answer.ask.endpoint])
        return encode_event({**head, "choices": [choice], **counts})

    def _usage(self, index: int, chunk: Chunk) -> dict[str, int] | None:
        """The counts of a choice so far, if requested for every event."""
        if not self._answer.ask.usage_in_events:
            return None
        read, written = chunk.num_prompt_tokens, self._num_generated[index]
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        }

    def _chat_piece(self, index: int, chunk: Chunk) -> dict[str, Any]:  # noqa: ARG002
        return {
            "delta": {"content": chunk.text} if chunk.text else {},
            "logprobs": chat_logprobs(self._answer, chunk.logprobs) if chunk.logprobs else None,
            "finish_reason": chunk.finish_reason,
        }

    def _completion_piece(self, index: int, chunk: Chunk) -> dict[str, Any]:
        tokens = [*chunk.prompt_logprobs, *chunk.logprobs]
        logprobs = completion_logprobs(self._answer, tokens, self._offsets[index])
        before = self._answer.prompt_text(index) if chunk.prompt_logprobs else ""
        return {
            "text": before + chunk.text,
            "logprobs": logprobs if tokens else None,
            "finish_reason": chunk.finish_reason,
        }


NOT_YET = {"logprobs": None, "finish_reason": None}
"""Fields of a choice without a value yet."""
