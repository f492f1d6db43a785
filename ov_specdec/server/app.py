"""The routes of the server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ov_specdec.openai import (
    ApiError,
    ChatBody,
    CompletionBody,
    ResponsesBody,
    make_stream,
    read_ask,
)
from ov_specdec.openai.audio import FILE, TranscriptionForm, TranslationForm
from ov_specdec.openai.audio import read_form as read_fields
from ov_specdec.openai.body import Rules, read
from ov_specdec.openai.errors import ErrorBody, invalid
from ov_specdec.openai.part import Part
from ov_specdec.openai.requests import GenerationBody
from ov_specdec.openai.tokens import DetokenizeBody, TokenizeBody
from ov_specdec.openai.transcriptions import MEDIA_TYPES, StreamedTranscription
from ov_specdec.options.checks import suggest
from ov_specdec.server.access import Access, Record, digest_of, error_response
from ov_specdec.server.bodies import read_form, read_json
from ov_specdec.server.document import OPERATIONS, complete, errors
from ov_specdec.server.limits import reject_oversized
from ov_specdec.server.reply import Reply, Task
from ov_specdec.server.schemas import Endpoints, Health, Model, ModelList, Version
from ov_specdec.server.service import Service
from ov_specdec.server.stream import run_in_thread

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
    rules = Rules(None, settings.strict_fields, settings.default_max_tokens)
    _add_generation(app, service, rules)
    _add_audio(app, service, rules)
    _add_tokens(app, service, rules)
    _add_state(app, service)
    complete(app)
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

        @asynccontextmanager
        async def begin(grow: Callable[[int, int], None]) -> AsyncIterator[Task]:
            limits = settings.max_body, settings.body_timeout
            ask = await read_json(request, *limits, lambda body: read_ask(kind, body, rules))
            record.user = ask.user
            service.check_model(ask.model)
            reject_oversized(ask, service.engine.max_length, settings.max_request_tokens)
            grow(ask.num_choices, ask.n)
            answer = service.answer(ask)
            running = partial(service.running, ask, record.tenant)
            yield Task(make_stream(answer), answer.choices, ask.stream, running, ask.endpoint)

        return Reply(service, begin, record)

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


def _add_audio(app: FastAPI, service: Service, rules: Rules) -> None:
    settings = service.settings

    def transcribe(request: Request, kind: type[TranslationForm]) -> Reply:
        record: Record = request.state.record

        @asynccontextmanager
        async def begin(_: Callable[[int, int], None]) -> AsyncIterator[Task]:
            limits = settings.max_body, settings.body_timeout
            texts, recording = await read_form(request, *limits, settings.cors_origins)
            ask = read_fields(kind, texts, rules)
            if recording is None:
                raise invalid(FILE, "file is missing: send the recording as a file")
            with recording:
                record.user = ask.user
                service.check_model(ask.model)
                writer = StreamedTranscription(ask)
                form = MEDIA_TYPES.get(ask.form)
                running = partial(service.transcribing, ask, recording, record.tenant)
                yield Task(writer, writer.choices, ask.stream, running, media_type=form)

        return Reply(service, begin, record)

    @_post(app, "/v1/audio/transcriptions")
    async def transcriptions(request: Request) -> Any:
        """Transcribe a recording."""
        return transcribe(request, TranscriptionForm)

    @_post(app, "/v1/audio/translations")
    async def translations(request: Request) -> Any:
        """Translate a recording into English."""
        return transcribe(request, TranslationForm)


def _add_tokens(app: FastAPI, service: Service, rules: Rules) -> None:
    settings = service.settings

    async def answer(
        request: Request, kind: type[Wanted], make: Callable[[Wanted], Part]
    ) -> JSONResponse:
        record: Record = request.state.record
        with service.entered(record.tenant):
            limits = settings.max_body, settings.body_timeout
            body = await read_json(request, *limits, lambda body: read(kind, body, rules))
            service.check_model(body.model)
            return await run_in_thread(lambda: JSONResponse(make(body).model_dump()))

    @_post(app, "/tokenize")
    async def tokenize(request: Request) -> Any:
        """The token ids of a prompt, or of messages in the chat template."""
        return await answer(request, TokenizeBody, service.tokenize)

    @_post(app, "/detokenize")
    async def detokenize(request: Request) -> Any:
        """The text of token ids."""
        return await answer(request, DetokenizeBody, service.detokenize)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/")
    def endpoints() -> Endpoints:
        """The paths of the server."""
        return Endpoints(endpoints=_paths(app))

    @app.get("/v1/models/", include_in_schema=False)  # else the name of a model, and empty
    @app.get("/v1/models", responses=errors(401, 503))
    def models() -> ModelList:
        """The model that is served."""
        return ModelList(data=list(map(service.describe_model, service.model_names)))

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


def _answer_error(request: Request, error: Any) -> JSONResponse:
    record: Record = request.state.record
    record.fail(error)
    return error_response(error)


def _answer_http_error(request: Request, error: Any) -> JSONResponse:
    """Errors of FastAPI itself: unknown paths and methods."""
    headers = error.headers or {}
    message = f"{request.method} {request.url.path}: {error.detail}"
    if error.status_code == 404:  # clients leave out /v1, or have it twice
        paths = _paths(request.app)
        others = f"there are {', '.join(paths)}"
        message += f": {suggest(request.url.path, paths, others, most=1, cutoff=LIKE)}"
    elif "Allow" in headers:
        message += f": send {headers['Allow']}"
    response = error_response(ApiError(error.status_code, message))
    response.headers.update(headers)
    return response


def _paths(app: FastAPI) -> list[str]:
    """The paths that hold no name of a model."""
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    return [route.path for route in routes if route.include_in_schema and "{" not in route.path]
