"""The OpenAPI document, and the shapes of the server's own endpoints, such as /tokenize.

It adds streams, and bodies that handlers read themselves: OpenAI's errors name one field, in their
own shape, so bodies are not parameters of handlers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from ov_specdec.openai.audio import (
    MEDIA_TYPES,
    TextDelta,
    TextDone,
    TranscriptionForm,
    TranslationForm,
    VerboseTranscription,
)
from ov_specdec.openai.body import Body, with_options
from ov_specdec.openai.completions import ChatChunk, ChatCompletion, Completion, CompletionChunk
from ov_specdec.openai.errors import ErrorBody, Part, invalid
from ov_specdec.openai.messages import Messages, read_messages
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody
from ov_specdec.openai.responses import RESPONSE_EVENTS, Response
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.prompt import Prompt

REF = "#/components/schemas/{model}"

DESCRIPTIONS = {
    400: "A field is invalid or not supported.",
    401: "No valid API key.",
    403: "The form comes from a page of another site.",
    404: "The model is not served.",
    413: "The body is too large.",
    415: "The body is compressed.",
    429: "The queue is full.",
    500: "The server has failed.",
    503: "The server is loading or shutting down, or the wait in the queue was too long.",
    504: "The answer took too long.",
}


class BatchInvariant(Part):
    """Whether a text depends only on model and request, and the reason."""

    is_on: bool
    is_checked: bool
    reason: str


class Model(Part):
    """A model that is served. chat_template: whether it takes messages."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ov-specdec"
    max_model_len: int
    chat_template: bool
    batch_invariant: BatchInvariant


class ModelList(Part):
    """The models that are served."""

    object: Literal["list"] = "list"
    data: list[Model]


@with_options(
    GenerationOptions,
    (
        *("add_special_tokens", "chat_template_kwargs"),
        *("add_generation_prompt", "continue_final_message"),
    ),
)
class TokenizeBody(Body):
    """Body of /tokenize: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None

    def read(self) -> tuple[Prompt, GenerationOptions]:
        """The prompt, and its options."""
        if self.prompt is not None and self.messages is None:
            return self.prompt, GenerationOptions(**self.options, apply_chat_template=False)
        if self.messages is None or self.prompt is not None:
            raise invalid("prompt", "give either a prompt or messages")
        messages = read_messages(message.given() for message in self.messages)
        return messages, GenerationOptions(**self.options)


class DetokenizeBody(Body):
    """Body of /detokenize."""

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]


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

    status: Literal["ok"] = "ok"


class Endpoints(Part):
    """What the server offers: its paths, and the page that describes them."""

    name: Literal["ov-specdec"] = "ov-specdec"
    endpoints: list[str]
    documentation: Literal["/docs"] = "/docs"


class Version(Part):
    """Answer of /version."""

    version: str


@dataclass(frozen=True)
class Operation:
    """Input and output of a path. about: what it does. answer: as JSON. events: of a stream.

    texts: other media types. ends_with_done: whether a complete stream ends with the event [DONE].
    """

    name: str
    about: str
    body: type[Body]
    answer: type[BaseModel]
    events: tuple[type[BaseModel], ...] = ()
    texts: tuple[str, ...] = ()
    ends_with_done: bool = False

    def arguments(self) -> dict[str, Any]:
        """The descriptive arguments of `FastAPI.add_api_route`."""
        content = {text.partition(";")[0]: {"schema": {"type": "string"}} for text in self.texts}
        if self.events:  # each as in OpenAPI 3.2: its data is JSON in a text
            payload = {"anyOf": [_ref(event) for event in self.events]}
            text = {"contentMediaType": "application/json", "contentSchema": payload}
            data = {"anyOf": [text, {"const": "[DONE]"}]} if self.ends_with_done else text
            event: Any = {
                "type": "object",
                "properties": {"data": {"type": "string", **data}, "event": {"type": "string"}},
                "required": ["data"],
                "additionalProperties": False,
            }
            content["text/event-stream"] = {"itemSchema": event}
        is_form = issubclass(self.body, TranslationForm)
        media_type = "multipart/form-data" if is_form else "application/json"
        body = {"required": True, "content": {media_type: {"schema": _ref(self.body)}}}
        return {
            "name": self.name,
            "description": self.about,
            "response_model": None,
            "responses": {200: {"model": self.answer, "content": content}, **errors()},
            "openapi_extra": {"requestBody": body},
        }


OPERATIONS = {
    "/v1/chat/completions": Operation(
        "chat_completions",
        "Answer a conversation, in the model's chat template.",
        ChatBody,
        ChatCompletion,
        (ChatChunk, ErrorBody),
        ends_with_done=True,
    ),
    "/v1/completions": Operation(
        "completions",
        "Continue one prompt or several, texts or token ids, without a chat template.",
        CompletionBody,
        Completion,
        (CompletionChunk, ErrorBody),
        ends_with_done=True,
    ),
    "/v1/responses": Operation(
        "responses",
        "Answer a text or a conversation; nothing is stored.",
        ResponsesBody,
        Response,
        RESPONSE_EVENTS,
    ),
    "/v1/audio/transcriptions": Operation(
        "transcriptions",
        "Transcribe a recording.",
        TranscriptionForm,
        VerboseTranscription,
        (TextDelta, TextDone, ErrorBody),
        tuple(MEDIA_TYPES.values()),
    ),
    "/v1/audio/translations": Operation(
        "translations",
        "Translate a recording into English.",
        TranslationForm,
        VerboseTranscription,
        texts=tuple(MEDIA_TYPES.values()),
    ),
    "/tokenize": Operation(
        "tokenize",
        "The token ids of a prompt, or of messages in the chat template.",
        TokenizeBody,
        Tokens,
    ),
    "/detokenize": Operation("detokenize", "The text of token ids.", DetokenizeBody, Text),
}
"""Operations whose handlers read the body, by path."""


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Descriptions of answers with these statuses; without arguments, of all."""
    return {
        status: {"model": ErrorBody, "description": DESCRIPTIONS[status]}
        for status in statuses or DESCRIPTIONS
    }


def complete(app: FastAPI) -> None:
    """Add the schemas of `OPERATIONS` to the document of an application."""
    bodies: Any = {each.body: "validation" for each in OPERATIONS.values()}
    events = {event: "serialization" for each in OPERATIONS.values() for event in each.events}
    kinds = sorted({**bodies, **events}.items(), key=lambda item: item[0].__name__)
    definitions = models_json_schema(kinds, ref_template=REF)[1]["$defs"]
    describe: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        document["components"]["schemas"].update(definitions)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF.format(model=model.__name__)}
