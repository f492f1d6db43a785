"""The routes of the server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ov_specdec.openai.answer import Answer
from ov_specdec.openai.audio import FILE, MEDIA_TYPES, StreamedTranscription, TranslationForm
from ov_specdec.openai.audio import read_form as read_fields
from ov_specdec.openai.body import Body, Rules, read
from ov_specdec.openai.completions import StreamedCompletion
from ov_specdec.openai.errors import ApiError, ErrorBody, invalid
from ov_specdec.openai.requests import GenerationBody, read_ask
from ov_specdec.openai.responses import StreamedResponse
from ov_specdec.options.checks import suggest
from ov_specdec.server.access import Access, Record, error_response
from ov_specdec.server.bodies import read_form, read_json
from ov_specdec.server.document import (
    OPERATIONS,
    Endpoints,
    Health,
    Model,
    ModelList,
    Version,
    complete,
    errors,
)
from ov_specdec.server.limits import reject_oversized
from ov_specdec.server.reply import Reply, Task
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream, run_in_thread
from ov_specdec.server.transcriptions import Job
from ov_specdec.speech.segments import TranscriptionChunk


def make_app(
    service: Service,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """The application. lifespan: loads the models at the start, if given."""
    app = FastAPI(
        title="ov-specdec",
        version=version("ov-specdec"),
        description="Speculative decoding on OpenVINO, with OpenAI's interface.",
        lifespan=lifespan,
    )
    app.add_exception_handler(HTTPException, _answer_http_error)
    settings = service.settings
    rules = Rules(None, settings.strict_fields, settings.default_max_tokens)
    for path, operation in OPERATIONS.items():
        handle = _handler(operation.body, service, rules)
        app.add_api_route(path, handle, methods=["POST"], **operation.arguments())
    _add_state(app, service)
    complete(app)
    app.add_middleware(Access, settings=settings, on_failure=service.metrics.failed)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # OpenAI's client sends several of its own
            expose_headers=["retry-after", "x-request-id"],
        )
    return app


def _handler(
    kind: type[Body], service: Service, rules: Rules
) -> Callable[[Request], Awaitable[Any]]:
    """Answers requests whose bodies are of this kind."""

    async def handle(request: Request) -> Any:
        record: Record = request.state.record
        if issubclass(kind, GenerationBody):
            return Reply(service, partial(_generation, kind, request, service, rules), record)
        if issubclass(kind, TranslationForm):
            return Reply(service, partial(_transcription, kind, request, service, rules), record)
        with service.entered(record.tenant):
            body: Any = await read_json(request, service.settings, lambda c: read(kind, c, rules))
            service.check_model(body.model)
            return await run_in_thread(lambda: JSONResponse(service.convert(body).model_dump()))

    return handle


@asynccontextmanager
async def _generation(
    kind: type[GenerationBody],
    request: Request,
    service: Service,
    rules: Rules,
    grow: Callable[[int, int], None],
) -> AsyncIterator[Task]:
    """Read a request for texts. grow: see `Slots.entered`."""
    record: Record = request.state.record
    settings = service.settings
    ask = await read_json(request, settings, lambda body: read_ask(kind, body, rules))
    record.user = ask.user
    service.check_model(ask.model)
    reject_oversized(ask, service.engine.max_length, settings.max_request_tokens)
    grow(ask.num_choices, ask.n)
    tokenizer = service.engine.tokenizer
    if ask.endpoint != "completions" and tokenizer.chat_template is None:
        raise invalid(
            "messages" if ask.endpoint == "chat" else "input",
            "the model has no chat template: send a text to /v1/completions, or start the "
            "server with --chat-template FILE",
        )
    answer = Answer(ask, settings.model_name, tokenizer)
    writer = (StreamedResponse if ask.endpoint == "responses" else StreamedCompletion)(answer)
    running = partial(service.running, ask, record.tenant)
    yield Task(writer, answer.choices, ask.stream, running, ask.names)


@asynccontextmanager
async def _transcription(
    kind: type[TranslationForm], request: Request, service: Service, rules: Rules, _: object
) -> AsyncIterator[Task]:
    """Read a request for a transcription."""
    record: Record = request.state.record
    texts, recording = await read_form(request, service.settings)
    ask = read_fields(kind, texts, rules)
    if recording is None:
        raise invalid(FILE, "file is missing: send the recording as a file")
    with recording:
        record.user = ask.user
        service.check_model(ask.model)
        writer = StreamedTranscription(ask)
        media_type = MEDIA_TYPES.get(ask.form)

        def running(stream: Stream[TranscriptionChunk]) -> AbstractAsyncContextManager[None]:
            return service.speech.running(Job(ask, recording, record.tenant, stream))

        yield Task(writer, writer.choices, ask.stream, running, media_type=media_type)


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

    @app.get(
        "/v1/models/{model:path}",
        # 4XX: else FastAPI adds a 422 in a shape of its own.
        responses={**errors(401, 404, 503), "4XX": {"model": ErrorBody}},
    )
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
    async def metrics() -> Any:
        """Metrics for Prometheus."""
        exported = await service.export_metrics()
        return PlainTextResponse(exported, media_type="text/plain; version=0.0.4")


def _answer_http_error(request: Request, error: Any) -> JSONResponse:
    """Errors of FastAPI itself: unknown paths and methods."""
    headers = error.headers or {}
    message = f"{request.method} {request.url.path}: {error.detail}"
    if error.status_code == 404:  # clients leave out /v1, or have it twice
        paths = _paths(request.app)
        others = f"there are {', '.join(paths)}"
        message += f": {suggest(request.url.path, paths, others, most=1, cutoff=0.75)}"
    elif "Allow" in headers:
        message += f": send {headers['Allow']}"
    response = error_response(ApiError(error.status_code, message))
    response.headers.update(headers)
    return response


def _paths(app: FastAPI) -> list[str]:
    """The paths that hold no name of a model."""
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    return [route.path for route in routes if route.include_in_schema and "{" not in route.path]
