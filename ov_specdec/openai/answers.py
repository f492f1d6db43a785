"""Answers of /v1/chat/completions and /v1/completions that are sent whole."""

from typing import Any, Literal

from ov_specdec.openai.answer import Answer
from ov_specdec.openai.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    CompletionScores,
    chat_logprobs,
)
from ov_specdec.openai.part import Maybe, Part
from ov_specdec.openai.usage import SpeculationMetrics, TokenCounts, Usage, make_metrics, make_usage

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
    usage: Usage | TokenCounts | None
    metrics: Maybe[SpeculationMetrics] = None


class ChatCompletion(AnswerBody):
    """An answer of /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: Usage


class Completion(AnswerBody):
    """An answer of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: Usage


def make_completion(answer: Answer) -> ChatCompletion | Completion:
    """The body of an answer whose choices have ended."""
    results = [choice.result for choice in answer.choices]
    common: dict[str, Any] = {
        **answer.head,
        "usage": make_usage(answer.ask, answer.stats),
        "metrics": make_metrics(answer.stats),
    }
    if answer.ask.endpoint == "chat":
        chats = [
            ChatChoice(
                index=index,
                message=ChatMessage(content=result.text),
                logprobs=chat_logprobs(answer, result.logprobs),
                finish_reason=result.finish_reason,  # type: ignore[arg-type]  # not cancelled
            )
            for index, result in enumerate(results)
        ]
        return ChatCompletion(choices=chats, **common)
    completions = [
        CompletionChoice(
            index=index,
            text=answer.prompt_text(index) + result.text,
            logprobs=CompletionScores(answer, index).add(result),
            finish_reason=result.finish_reason,  # type: ignore[arg-type]  # not cancelled
        )
        for index, result in enumerate(results)
    ]
    return Completion(choices=completions, **common)
