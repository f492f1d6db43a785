"""What the server's OpenAPI document says of answers; of requests it says what `openai` reads."""

from typing import Any, Literal

from pydantic import BaseModel

Object = dict[str, Any]


class Error(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """An answer that is an error, as OpenAI has it."""

    error: Error


class Usage(BaseModel):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int] | None = None


class Answer(BaseModel):
    """An answer of /v1/chat/completions or /v1/completions; a stream has its parts as events."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Object]
    usage: Usage
    metrics: Object | None = None


class Response(BaseModel):
    """An answer of /v1/responses."""

    id: str
    object: Literal["response"]
    created_at: float
    status: str
    model: str
    output: list[Object]
    usage: Object | None


class BatchInvariant(BaseModel):
    """Whether a text depends on nothing but model and request, and why that is said."""

    is_on: bool
    is_checked: bool
    reason: str


class Model(BaseModel):
    """A model that is served. chat_template: whether it takes messages; the last three: `About`."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    chat_template: bool
    batch_invariant: BatchInvariant
    takes: Literal["messages", "text", "audio"]
    writes_code: bool
    description: str


class Models(BaseModel):
    """The models that are served."""

    object: Literal["list"]
    data: list[Model]


class Tokens(BaseModel):
    """Answer of /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Text(BaseModel):
    """Answer of /detokenize."""

    prompt: str


class Health(BaseModel):
    """Answer of /health."""

    status: Literal["ok"]


class Version(BaseModel):
    """Answer of /version."""

    version: str


class Transcription(BaseModel):
    """The answer as json; as verbose_json it has language, duration and segments too."""

    text: str
    usage: Object
    task: str | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[Object] | None = None
