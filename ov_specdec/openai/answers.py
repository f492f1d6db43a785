"""Answers of /v1/chat/completions and /v1/completions that are sent whole."""

from collections.abc import Sequence
from typing import Any, Literal

from ov_specdec.chunks import GenerationResult
from ov_specdec.openai.answer import Answer
from ov_specdec.openai.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    TextOffsets,
    chat_logprobs,
    completion_logprobs,
)
from ov_specdec.openai.part import Maybe, Part
from ov_specdec.openai.usage import Counts, Metrics, Usage, make_metrics, make_usage

FinishReason = Literal["stop", "length"]
"""Of an answer; a cancelled one is an error."""


class ChatMessage(Part):
    """The message of the model."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(Part):
    """One of the answers to a conversation."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class CompletionChoice(Part):
    """One of the continuations."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class AnswerBody(Part):
    """Common fields of whole answers and of events."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: None = None
    choices: list[Any]
    usage: Usage | Counts | None
    metrics: Maybe[Metrics] = None


class Chat(AnswerBody):
    """An answer of /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: Usage


class Completion(AnswerBody):
    """An answer of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: Usage


def make_completion(answer: Answer, results: Sequence[GenerationResult]) -> Chat | Completion:
    """The body of an answer. results: of `Ask.generations`, in that order."""
    stats = [result.stats for result in results]
    common: dict[str, Any] = {
        **answer.head,
        "usage": make_usage(answer.ask, stats),
        "metrics": make_metrics(stats),
    }
    if answer.ask.endpoint == "chat":
        return Chat(choices=[_chat(answer, *each) for each in enumerate(results)], **common)
    return Completion(choices=[_completion(answer, *each) for each in enumerate(results)], **common)


def _chat(answer: Answer, index: int, result: GenerationResult) -> ChatChoice:
    return ChatChoice(
        index=index,
        message=ChatMessage(content=result.text),
        logprobs=chat_logprobs(answer, result.logprobs),
        finish_reason=result.finish_reason,  # type: ignore[arg-type]  # not cancelled
    )


def _completion(answer: Answer, index: int, result: GenerationResult) -> CompletionChoice:
    before = answer.prompt_text(index) if answer.ask.echo else ""
    tokens = [*result.prompt_logprobs, *result.logprobs]
    return CompletionChoice(
        index=index,
        text=before + result.text,
        logprobs=completion_logprobs(answer, tokens, TextOffsets()),
        finish_reason=result.finish_reason,  # type: ignore[arg-type]  # not cancelled
    )
