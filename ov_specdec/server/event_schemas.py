"""Schemas of the data of events of streams, for the OpenAPI document."""

from typing import Literal

from ov_specdec.server.schemas import (
    ChatLogprobs,
    CompletionLogprobs,
    Counts,
    Empty,
    FinishReason,
    Metrics,
    OutputMessage,
    OutputText,
    Part,
    Response,
    Usage,
)

Origin = Literal["draft", "correction", "bonus", "plain"]


class Choice(Part):
    """A piece of a choice. finish_reason: on its last one."""

    index: int
    finish_reason: FinishReason | None
    origin: Origin | None = None


class Delta(Part):
    """New text of a message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: None = None


class ChatPiece(Choice):
    """A piece of an answer to a conversation."""

    delta: Delta
    logprobs: ChatLogprobs | None


class CompletionPiece(Choice):
    """A piece of a continuation."""

    text: str
    logprobs: CompletionLogprobs | None


class AnswerChunk(Part):
    """Common fields of events. usage: in the last one, or in all if requested."""

    id: str
    created: int
    model: str
    system_fingerprint: None
    usage: Usage | Counts | None = None
    metrics: Metrics | None = None


class ChatChunk(AnswerChunk):
    """An event of /v1/chat/completions."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatPiece]


class CompletionChunk(AnswerChunk):
    """An event of /v1/completions."""

    object: Literal["text_completion"]
    choices: list[CompletionPiece]


class ResponseEvent(Part):
    """Common fields of events of /v1/responses."""

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
    output_index: int
    item: OutputMessage


class ContentEvent(ResponseEvent):
    """An event of the text of the message."""

    item_id: str
    output_index: int
    content_index: int


class PartChanged(ContentEvent):
    """The text has begun or ended."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputText


class OutputTextDelta(ContentEvent):
    """New text of the message."""

    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: Empty


class OutputTextDone(ContentEvent):
    """The complete text."""

    type: Literal["response.output_text.done"]
    text: str
    logprobs: Empty


class ResponseFailed(ResponseEvent):
    """The response has failed."""

    type: Literal["error"]
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


class TextDelta(Part):
    """New text of a transcription."""

    type: Literal["transcript.text.delta"]
    delta: str


class TokenUsage(Part):
    """Counts of tokens of a transcription."""

    type: Literal["tokens"]
    input_tokens: int
    output_tokens: int
    total_tokens: int


class TextDone(Part):
    """The complete transcription."""

    type: Literal["transcript.text.done"]
    text: str
    usage: TokenUsage
    metrics: Metrics | None = None
