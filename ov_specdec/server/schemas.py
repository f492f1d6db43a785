"""What the server's OpenAPI document says of bodies. The fields are read in `ov_specdec.openai`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ov_specdec.openai.requests import CHAT_NEUTRAL, COMPLETION_NEUTRAL
from ov_specdec.openai.responses import RESPONSE_NEUTRAL

Logprobs = Annotated[int, Field(ge=0, le=20)]
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


class _Body(BaseModel):
    """A body whose unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


def _with(neutral: Mapping[str, tuple[Any, ...]]) -> ConfigDict:
    """What a body is that also takes fields which change nothing. neutral: their values."""

    def add(schema: Object) -> None:
        schema["properties"].update(
            {name: {"enum": [*values, None]} for name, values in neutral.items()}
        )

    return ConfigDict(json_schema_extra=add)


class _Generation(_Body):
    """The fields that all endpoints have which generate."""

    model: str | None = None
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None
    min_tokens: int | None = Field(None, ge=0)
    ignore_eos: bool | None = None
    num_assistant_tokens: int | Literal["auto"] | None = None
    assistant_confidence_threshold: float | None = Field(None, ge=0, le=1)
    cache_salt: str | None = None
    stream: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None


class _Choices(_Generation):
    """Those that chat completions and completions share."""

    n: int | None = Field(None, ge=1, le=128)
    stream_options: Object | None = None
    return_origins: bool | None = None


class ChatBody(_Choices):
    """Body of /v1/chat/completions."""

    model_config = _with(CHAT_NEUTRAL)

    messages: list[Object] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None
    chat_template_kwargs: Object | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    prediction: Object | None = None


class CompletionBody(_Choices):
    """Body of /v1/completions."""

    model_config = _with(COMPLETION_NEUTRAL)

    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: int | None = Field(None, ge=1)
    logprobs: Logprobs | None = None
    echo: bool | None = None
    src_lang: str | None = None
    tgt_lang: str | None = None
    forced_bos_token_id: int | None = Field(None, ge=0)
    best_of: int | None = Field(None, ge=1)


class ResponsesBody(_Generation):
    """Body of /v1/responses."""

    model_config = _with(RESPONSE_NEUTRAL)

    input: str | list[Object]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    metadata: dict[str, str] | None = None
    chat_template_kwargs: Object | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class TokenizeBody(_Body):
    """Body of /tokenize: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Object] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Object | None = None
    return_token_strs: bool | None = None
    add_special_tokens: bool | None = None


class DetokenizeBody(_Body):
    """Body of /detokenize."""

    model: str | None = None
    tokens: list[int]


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
    """A model that is served. chat_template: whether it takes messages."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    chat_template: bool
    batch_invariant: BatchInvariant


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


class Form(_Body):
    """Fields of a form, beside the file."""

    file: Annotated[bytes, Field(json_schema_extra={"format": "binary"})]
    model: str | None = None
    prompt: str | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=0)
    num_assistant_tokens: int | Literal["auto"] | None = None
    cache_salt: str | None = None
    user: str | None = None


class TranslationForm(Form):
    """What /v1/audio/translations takes."""

    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] | None = None


class TranscriptionForm(TranslationForm):
    """What /v1/audio/transcriptions takes."""

    language: str | None = None
    stream: bool | None = None
    chunking_strategy: Literal["auto"] | None = None
    timestamp_granularities: list[Literal["segment"]] | None = Field(
        None, alias="timestamp_granularities[]"
    )


class Transcription(BaseModel):
    """The answer as json; as verbose_json it has language, duration and segments too."""

    text: str
    usage: Object
    task: str | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[Object] | None = None
