"""The routes: what is answered under which path."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from importlib.resources import files
from typing import Any, BinaryIO, TypeVar

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ov_specdec.openai import ApiError, Ask, ChatBody, CompletionBody, ResponsesBody, read_ask
from ov_specdec.openai.audio import FILE, AudioAsk, TranscriptionForm, TranslationForm
from ov_specdec.openai.audio import read_form as read_fields
from ov_specdec.openai.body import Rules, UnknownNames, read
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.requests import GenerationBody
from ov_specdec.openai.tokens import DetokenizeBody, TokenizeBody
from ov_specdec.server import schemas
from ov_specdec.server.access import Access, Record, digest_of, error_response
from ov_specdec.server.audio_reply import AudioReply
from ov_specdec.server.bodies import read_form, read_json
from ov_specdec.server.reply import Reply
from ov_specdec.server.service import Service

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.ErrorBody, "description": "A field that cannot be honoured."},
    401: {"model": schemas.ErrorBody, "description": "No valid API key."},
    403: {"model": schemas.ErrorBody, "description": "A form of another site's page."},
    404: {"model": schemas.ErrorBody, "description": "Another model."},
    413: {"model": schemas.ErrorBody, "description": "The body is too large."},
    429: {"model": schemas.ErrorBody, "description": "The queue is full."},
    500: {"model": schemas.ErrorBody, "description": "The server has failed."},
    503: {"model": schemas.ErrorBody, "description": "Loading, or shutting down."},
    504: {"model": schemas.ErrorBody, "description": "The answer took too long."},
}

Tokens = TypeVar("Tokens", TokenizeBody, DetokenizeBody)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_app(service: Service, lifespan: Lifespan | None = None) -> FastAPI:
    """The application. lifespan: what loads the models when it starts, where it is to do so."""
    app = FastAPI(
        title="ov-specdec",
        version=version("ov-specdec"),
        description="Speculative decoding on OpenVINO, with OpenAI's interface.",
        lifespan=lifespan,
    )
    app.add_exception_handler(ApiError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    settings = service.settings
    rules = Rules(settings.temperature, UnknownNames(refuse=settings.strict_fields))
    _add_generation(app, service, rules)
    _add_audio(app, service, rules.unknown)
    _add_tokens(app, service, rules.unknown)
    _add_state(app, service)
    if settings.allowed_hosts:  # else a page of a name that leads here could call it
        hosts = list(settings.allowed_hosts)
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    digests = [digest_of(key) for key in settings.api_keys]
    app.add_middleware(Access, digests=digests, on_failure=service.metrics.failed)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # OpenAI's client sends several of its own
            expose_headers=["retry-after", "x-request-id"],
        )
    return app


def _add_generation(app: FastAPI, service: Service, rules: Rules) -> None:
    settings = service.settings

    def generate(request: Request, kind: type[GenerationBody]) -> Reply:
        record: Record = request.state.record

        async def read_body() -> Ask:
            limits = settings.max_body, settings.body_timeout
            ask = await read_json(request, *limits, lambda body: read_ask(kind, body, rules))
            record.user = ask.user
            service.check_model(ask.model)
            return ask

        return Reply(service, read_body, record)

    @_post(app, "/v1/chat/completions", ChatBody, schemas.Answer)
    async def chat_completions(request: Request) -> Any:
        """Answer a conversation, in the model's chat template."""
        return generate(request, ChatBody)

    @_post(app, "/v1/completions", CompletionBody, schemas.Answer)
    async def completions(request: Request) -> Any:
        """Continue one prompt or several, texts or token ids, without a chat template."""
        return generate(request, CompletionBody)

    @_post(app, "/v1/responses", ResponsesBody, schemas.Response)
    async def responses(request: Request) -> Any:
        """Answer a text or a conversation; nothing is stored."""
        return generate(request, ResponsesBody)


def _add_audio(app: FastAPI, service: Service, unknown: UnknownNames) -> None:
    settings = service.settings

    def transcribe(request: Request, kind: type[TranslationForm]) -> AudioReply:
        record: Record = request.state.record

        async def read_body() -> tuple[AudioAsk, BinaryIO]:
            limits = settings.max_body, settings.body_timeout
            texts, recording = await read_form(request, *limits, settings.cors_origins)
            ask = read_fields(kind, texts, unknown)
            if recording is None:
                raise invalid(FILE, "file is missing: send the recording as a file")
            record.user = ask.user
            service.check_model(ask.model)
            return ask, recording

        return AudioReply(service, read_body, record)

    @_post(app, "/v1/audio/transcriptions", TranscriptionForm, schemas.Transcription)
    async def transcriptions(request: Request) -> Any:
        """Transcribe a recording."""
        return transcribe(request, TranscriptionForm)

    @_post(app, "/v1/audio/translations", TranslationForm, schemas.Transcription)
    async def translations(request: Request) -> Any:
        """Translate a recording into English."""
        return transcribe(request, TranslationForm)


def _add_tokens(app: FastAPI, service: Service, unknown: UnknownNames) -> None:
    settings = service.settings

    async def answer(
        request: Request, kind: type[Tokens], make: Callable[[Tokens], dict[str, Any]]
    ) -> JSONResponse:
        record: Record = request.state.record
        with service.entered(record.tenant):
            limits = settings.max_body, settings.body_timeout
            body = await read_json(request, *limits, lambda body: read(kind, body, unknown))
            service.check_model(body.model)
            return await asyncio.to_thread(lambda: JSONResponse(make(body)))

    @_post(app, "/tokenize", TokenizeBody, schemas.Tokens)
    async def tokenize(request: Request) -> Any:
        """The token ids of a prompt, or of messages in the chat template."""
        return await answer(request, TokenizeBody, lambda body: service.tokenize(body.wanted()))

    @_post(app, "/detokenize", DetokenizeBody, schemas.Text)
    async def detokenize(request: Request) -> Any:
        """The text of token ids."""
        return await answer(request, DetokenizeBody, service.detokenize)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models", response_model=schemas.Models, responses=_errors(401, 503))
    def models() -> Any:
        """The model that is served."""
        return {"object": "list", "data": list(map(service.describe_model, service.model_names))}

    @app.get(
        "/v1/models/{model:path}", response_model=schemas.Model, responses=_errors(401, 404, 503)
    )
    def model(model: str) -> Any:
        """The model, if it has this name."""
        service.check_model(model)
        return service.describe_model(model)

    @app.get("/health", response_model=schemas.Health, responses=_errors(503))
    async def health() -> Any:
        """Whether requests are taken and answered."""
        await service.check_health()
        return {"status": "ok"}

    @app.get("/version", response_model=schemas.Version)
    def show_version() -> Any:
        """The version of ov-specdec."""
        return {"version": version("ov-specdec")}

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        exported = await service.export_metrics()
        return Response(exported, media_type="text/plain; version=0.0.4")

    @app.head("/", include_in_schema=False)
    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def page() -> str:
        """A page to try the model on."""
        return files("ov_specdec.server").joinpath("page.html").read_text(encoding="utf-8")


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: ERRORS[status] for status in statuses}


def _post(
    app: FastAPI, path: str, body: type[BaseModel], answer: type[BaseModel]
) -> Callable[[Callable[[Request], Awaitable[Any]]], Callable[[Request], Awaitable[Any]]]:
    """A route whose body is read by hand: OpenAI's errors name one field, in a shape of their own.

    body, answer: what the OpenAPI document says of both.
    """
    schema = body.model_json_schema()
    is_form = issubclass(body, TranslationForm)
    media_type = "multipart/form-data" if is_form else "application/json"

    def decorate(
        handler: Callable[[Request], Awaitable[Any]],
    ) -> Callable[[Request], Awaitable[Any]]:
        app.add_api_route(
            path,
            handler,
            methods=["POST"],
            response_model=None,
            responses={200: {"model": answer}, **ERRORS},
            openapi_extra={
                "requestBody": {
                    "required": True,
                    "content": {media_type: {"schema": schema}},
                }
            },
        )
        return handler

    return decorate


def _answer_error(request: Request, error: Exception) -> JSONResponse:
    record: Record = request.state.record
    failure = error if isinstance(error, ApiError) else ApiError(500, str(error))
    record.fail(failure)
    return error_response(failure)


def _answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """What FastAPI itself refuses: paths and methods that are not there."""
    status = getattr(error, "status_code", 500)
    detail = getattr(error, "detail", "")
    message = f"{request.method} {request.url.path}: {detail}"
    response = error_response(ApiError(status, message))
    response.headers.update(getattr(error, "headers", None) or {})
    return response
