"""The routes of the server."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any, BinaryIO, TypeVar

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ov_specdec.checks import suggest
from ov_specdec.openai import ApiError, Ask, ChatBody, CompletionBody, ResponsesBody, read_ask
from ov_specdec.openai.audio import FILE, AudioAsk, TranscriptionForm, TranslationForm
from ov_specdec.openai.audio import read_form as read_fields
from ov_specdec.openai.body import Rules, UnknownNames, read
from ov_specdec.openai.errors import ErrorBody, invalid
from ov_specdec.openai.part import Part
from ov_specdec.openai.requests import GenerationBody
from ov_specdec.openai.tokens import DetokenizeBody, TokenizeBody
from ov_specdec.server.access import Access, Record, digest_of, error_response
from ov_specdec.server.audio_reply import AudioReply
from ov_specdec.server.bodies import read_form, read_json
from ov_specdec.server.document import OPERATIONS, complete, errors
from ov_specdec.server.page import add_page
from ov_specdec.server.reply import Reply
from ov_specdec.server.schemas import Health, Model, Models, Version
from ov_specdec.server.service import Service
from ov_specdec.server.threads import run_in_thread

Wanted = TypeVar("Wanted", TokenizeBody, DetokenizeBody)

Handler = Callable[[Request], Awaitable[Any]]

LIKE = 0.75
"""How much alike two paths have to be, so that one is taken for the other."""

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_app(service: Service, lifespan: Lifespan | None = None) -> FastAPI:
    """The application. lifespan: loads the models at the start, if given."""
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
    complete(app)
    add_page(app)
    app.add_middleware(
        Access,
        hosts=settings.allowed_hosts,
        digests=[digest_of(key) for key in settings.api_keys],
        on_failure=service.metrics.failed,
    )
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

    @_post(app, "/v1/chat/completions")
    async def chat_completions(request: Request) -> Any:
        """Answer a conversation, in the model's chat template."""
        return generate(request, ChatBody)

    @_post(app, "/v1/completions")
    async def completions(request: Request) -> Any:
        """Continue one prompt or several, texts or token ids, without a chat template."""
        return generate(request, CompletionBody)

    @_post(app, "/v1/responses")
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

    @_post(app, "/v1/audio/transcriptions")
    async def transcriptions(request: Request) -> Any:
        """Transcribe a recording."""
        return transcribe(request, TranscriptionForm)

    @_post(app, "/v1/audio/translations")
    async def translations(request: Request) -> Any:
        """Translate a recording into English."""
        return transcribe(request, TranslationForm)


def _add_tokens(app: FastAPI, service: Service, unknown: UnknownNames) -> None:
    settings = service.settings

    async def answer(
        request: Request, kind: type[Wanted], make: Callable[[Wanted], Part]
    ) -> JSONResponse:
        record: Record = request.state.record
        with service.entered(record.tenant):
            limits = settings.max_body, settings.body_timeout
            body = await read_json(request, *limits, lambda body: read(kind, body, unknown))
            service.check_model(body.model)
            return await run_in_thread(lambda: JSONResponse(make(body).model_dump()))

    @_post(app, "/tokenize")
    async def tokenize(request: Request) -> Any:
        """The token ids of a prompt, or of messages in the chat template."""
        return await answer(request, TokenizeBody, lambda body: service.tokenize(body.wanted()))

    @_post(app, "/detokenize")
    async def detokenize(request: Request) -> Any:
        """The text of token ids."""
        return await answer(request, DetokenizeBody, service.detokenize)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models", responses=errors(401, 503))
    def models() -> Models:
        """The model that is served."""
        return Models(data=list(map(service.describe_model, service.model_names)))

    # 4XX: else FastAPI adds a 422 in a shape of its own.
    refused = {**errors(401, 404, 503), "4XX": {"model": ErrorBody}}

    @app.get("/v1/models/{model:path}", responses=refused)
    def model(model: str) -> Model:
        """The model, if it has this name."""
        service.check_model(model)
        return service.describe_model(model)

    @app.get("/health", responses=errors(503))
    async def health() -> Health:
        """Whether the server accepts and answers requests."""
        await service.check_health()
        return Health()

    @app.get("/version")
    def show_version() -> Version:
        """The version of ov-specdec."""
        return Version(version=version("ov-specdec"))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        exported = await service.export_metrics()
        return PlainTextResponse(exported, media_type="text/plain; version=0.0.4")


def _post(app: FastAPI, path: str) -> Callable[[Handler], Handler]:
    """A route whose handler reads the body itself."""

    def decorate(handler: Handler) -> Handler:
        app.add_api_route(path, handler, methods=["POST"], **OPERATIONS[path].arguments())
        return handler

    return decorate


def _answer_error(request: Request, error: Exception) -> JSONResponse:
    record: Record = request.state.record
    failure = error if isinstance(error, ApiError) else ApiError(500, str(error))
    record.fail(failure)
    return error_response(failure)


def _answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Errors of FastAPI itself: unknown paths and methods."""
    status = getattr(error, "status_code", 500)
    detail, headers = getattr(error, "detail", ""), getattr(error, "headers", None) or {}
    message = f"{request.method} {request.url.path}: {detail}"
    if status == 404:
        message = f"{message}: {_meant(request)}"
    elif "Allow" in headers:
        message = f"{message}: send {headers['Allow']}"
    response = error_response(ApiError(status, message))
    response.headers.update(headers)
    return response


def _meant(request: Request) -> str:
    """The path most like one that is not there; clients leave out /v1, or have it twice."""
    paths = [route.path for route in request.app.routes if isinstance(route, APIRoute)]
    paths = [path for path in paths if "{" not in path]
    return suggest(request.url.path, paths, f"there are {', '.join(paths)}", most=1, cutoff=LIKE)
