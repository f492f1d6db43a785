"""What the server's OpenAPI document says of the events of streams: the data of each."""

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
    """What a message grows by."""

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
    """What events have in common. usage: in the last one, or in all, where it was asked for."""

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
    """What events of /v1/responses have in common."""

    sequence_number: int


class ResponseChanged(ResponseEvent):
    """It has begun or ended."""

    type: Literal[
        "response.created", "response.in_progress", "response.completed", "response.incomplete"
    ]
    response: Response


class ItemChanged(ResponseEvent):
    """Its message has begun or ended."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputMessage


class ContentEvent(ResponseEvent):
    """An event of the text of its message."""

    item_id: str
    output_index: int
    content_index: int


class PartChanged(ContentEvent):
    """The text has begun or ended."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputText


class OutputTextDelta(ContentEvent):
    """The text grows."""

    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: Empty


class OutputTextDone(ContentEvent):
    """The text is whole."""

    type: Literal["response.output_text.done"]
    text: str
    logprobs: Empty


class ResponseFailed(ResponseEvent):
    """It cannot go on."""

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
    """A transcription grows."""

    type: Literal["transcript.text.delta"]
    delta: str


class TokenUsage(Part):
    """Counts of tokens of a transcription."""

    type: Literal["tokens"]
    input_tokens: int
    output_tokens: int
    total_tokens: int


class TextDone(Part):
    """A transcription is whole."""

    type: Literal["transcript.text.done"]
    text: str
    usage: TokenUsage
    metrics: Metrics | None = None
