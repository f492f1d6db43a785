"""Schemas of answers, for the OpenAPI document; those of requests are in `openai`.

They are complete, and `tests/test_server_schema.py` checks that answers have no other fields.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from ov_specdec.server.about import Takes

FinishReason = Literal["stop", "length"]

Empty = tuple[()]
"""A list that is always empty here."""


class Part(BaseModel):
    """An object, with these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Error(Part):
    """An error."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Part):
    """An error as an answer, in OpenAI's shape."""

    error: Error


class CachedTokens(Part):
    """Cached tokens of a prompt."""

    cached_tokens: int


class PredictedTokens(Part):
    """Draft tokens from matches, for a request with a prediction."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Counts(Part):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Usage(Counts):
    """Counts of tokens, with cached and predicted ones."""

    prompt_tokens_details: CachedTokens
    completion_tokens_details: PredictedTokens | None = None


class Speculation(Part):
    """Statistics of speculation, in vLLM's shape."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_spec_tokens: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int


class Metrics(Part):
    """Measurements of an answer with a single choice and draft tokens."""

    speculative_decoding: Speculation


class TokenLogprob(Part):
    """A token, its bytes, and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChatToken(TokenLogprob):
    """A token of the text, and the most likely ones at its place."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(Part):
    """Log-probabilities of a chat."""

    content: list[ChatToken]
    refusal: None


class ChatMessage(Part):
    """The message of the model."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Part):
    """One of the answers to a conversation."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class CompletionLogprobs(Part):
    """Log-probabilities of a completion, token by token; the first of a prompt has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Part):
    """One of the continuations."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class Answer(Part):
    """Common fields of answers."""

    id: str
    created: int
    model: str
    system_fingerprint: None
    usage: Usage
    metrics: Metrics | None = None


class Chat(Answer):
    """An answer of /v1/chat/completions."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class Completion(Answer):
    """An answer of /v1/completions."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class OutputText(Part):
    """The text of a response."""

    type: Literal["output_text"]
    text: str
    annotations: Empty
    logprobs: Empty


class OutputMessage(Part):
    """The message of a response."""

    id: str
    type: Literal["message"]
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"]
    content: list[OutputText]


class IncompleteDetails(Part):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class Reasoning(Part):
    """Always empty: there is no reasoning."""

    effort: None
    summary: None


class TextFormat(Part):
    """The format of plain text."""

    type: Literal["text"]


class TextSettings(Part):
    """Settings of the text of a response."""

    format: TextFormat


class InputTokens(CachedTokens):
    """Tokens of a prompt that were cached before, and that this response cached."""

    cache_write_tokens: int


class ReasoningTokens(Part):
    """Always 0."""

    reasoning_tokens: int


class ResponseUsage(Part):
    """Counts of tokens of a response."""

    input_tokens: int
    input_tokens_details: InputTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class Response(Part):
    """An answer of /v1/responses."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete"]
    background: Literal[False]
    error: None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputMessage]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: Reasoning
    service_tier: Literal["default"]
    store: Literal[False]
    temperature: float | None
    text: TextSettings
    tool_choice: Literal["none", "auto"]
    tools: Empty
    top_logprobs: Literal[0]
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None
    metrics: Metrics | None = None


class BatchInvariant(Part):
    """Whether a text depends only on model and request, and the reason."""

    is_on: bool
    is_checked: bool
    reason: str


class Model(Part):
    """A model that is served. chat_template: whether it takes messages; the last three: `About`."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    chat_template: bool
    batch_invariant: BatchInvariant
    takes: Takes
    writes_code: bool
    description: str


class Models(Part):
    """The models that are served."""

    object: Literal["list"]
    data: list[Model]


class Tokens(Part):
    """Answer of /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Text(Part):
    """Answer of /detokenize."""

    prompt: str


class Health(Part):
    """Answer of /health."""

    status: Literal["ok"]


class Version(Part):
    """Answer of /version."""

    version: str


class AudioUsage(Part):
    """The length of a recording."""

    type: Literal["duration"]
    seconds: int


class Segment(Part):
    """Text between two times, in seconds. seek: the frame that its window begins at."""

    id: int
    start: float
    end: float
    text: str
    tokens: list[int]
    seek: int
    temperature: float
    avg_logprob: float | None
    compression_ratio: float
    no_speech_prob: float | None


class Word(Part):
    """A word between two times, in seconds."""

    word: str
    start: float
    end: float


class Transcription(Part):
    """The answer as json; as verbose_json it has task, language, duration and segments too.

    words: if words are requested.
    """

    text: str
    usage: AudioUsage
    metrics: Metrics | None = None
    task: Literal["transcribe", "translate"] | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[Segment] | None = None
    words: list[Word] | None = None
