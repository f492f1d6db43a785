"""Streams of /v1/chat/completions and /v1/completions: turn chunks into server-sent events."""

from typing import Any, Literal

from pydantic import Field

from ov_specdec.chunks import Chunk
from ov_specdec.openai.answer import Answer
from ov_specdec.openai.answers import AnswerBody, FinishReason
from ov_specdec.openai.errors import ApiError
from ov_specdec.openai.events import DONE, encode_event
from ov_specdec.openai.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    TextOffsets,
    chat_logprobs,
    completion_logprobs,
)
from ov_specdec.openai.part import Maybe, Part
from ov_specdec.openai.usage import Counts, Metrics, Usage, count, make_metrics, make_usage
from ov_specdec.origins import Origin
from ov_specdec.stats import GenerationStats


class Delta(Part):
    """New text of a message; the first one has its role."""

    role: Maybe[Literal["assistant"]] = None
    content: Maybe[str] = None


class Piece(Part):
    """A piece of a choice. finish_reason: on its last one."""

    index: int
    finish_reason: FinishReason | None = None
    origin: Maybe[Origin] = None


class ChatPiece(Piece):
    """A piece of an answer to a conversation."""

    delta: Delta
    logprobs: ChatLogprobs | None = None


class CompletionPiece(Piece):
    """A piece of a continuation."""

    text: str
    logprobs: CompletionLogprobs | None = None


class Event(AnswerBody):
    """An event.

    usage: with `include_usage` only: null, except in the last event or if requested for all.
    """

    # `exclude_if` makes the schema say that it may be missing.
    usage: Usage | Counts | None = Field(None, exclude_if=lambda _: False)


class ChatChunk(Event):
    """An event of /v1/chat/completions."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatPiece]


class CompletionChunk(Event):
    """An event of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionPiece]


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
                delta = Delta(role="assistant", content="")
                events.append(self._event(ChatPiece(index=index, delta=delta)))
            elif answer.ask.echo and answer.ask.logprobs is None:
                events.append(
                    self._event(CompletionPiece(index=index, text=answer.prompt_text(index)))
                )
        return events

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """The events of a chunk of the choice with this index."""
        if chunk.stats is not None:
            self._stats[index] = chunk.stats
        self._num_generated[index] += len(chunk.token_ids)
        says_nothing = not chunk.text and not chunk.logprobs and not chunk.prompt_logprobs
        if says_nothing and chunk.finish_reason is None:
            return []
        common: dict[str, Any] = {
            "index": index,
            "finish_reason": chunk.finish_reason,
            "origin": chunk.origin if self._answer.ask.origins else None,
        }
        make = self._chat_piece if self._is_chat else self._completion_piece
        return [self._event(make(chunk, common), self._counts(index, chunk))]

    def end(self) -> list[bytes]:
        """The events after the last chunk."""
        if not self._answer.ask.include_usage:
            return [DONE]
        stats = [self._stats[index] for index in range(len(self._offsets))]
        usage = make_usage(self._answer.ask, stats)
        return [self._event(None, usage, make_metrics(stats)), DONE]

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream, without [DONE]."""
        return encode_event(error.body())

    def _event(
        self,
        piece: Piece | None,
        usage: Counts | None = None,
        metrics: Metrics | None = None,
    ) -> bytes:
        kind = ChatChunk if self._is_chat else CompletionChunk
        choices: list[Any] = [] if piece is None else [piece]
        event = kind(**self._answer.head, choices=choices, usage=usage, metrics=metrics)
        return encode_event(event, without=() if self._answer.ask.include_usage else ("usage",))

    def _counts(self, index: int, chunk: Chunk) -> Counts | None:
        """The counts of a choice so far, if requested for every event."""
        if not self._answer.ask.usage_in_events:
            return None
        return count(chunk.num_prompt_tokens, self._num_generated[index])

    def _chat_piece(self, chunk: Chunk, common: dict[str, Any]) -> ChatPiece:
        logprobs = chat_logprobs(self._answer, chunk.logprobs) if chunk.logprobs else None
        return ChatPiece(delta=Delta(content=chunk.text or None), logprobs=logprobs, **common)

    def _completion_piece(self, chunk: Chunk, common: dict[str, Any]) -> CompletionPiece:
        index, tokens = common["index"], [*chunk.prompt_logprobs, *chunk.logprobs]
        logprobs = completion_logprobs(self._answer, tokens, self._offsets[index])
        before = self._answer.prompt_text(index) if chunk.prompt_logprobs else ""
        return CompletionPiece(
            text=before + chunk.text, logprobs=logprobs if tokens else None, **common
        )
