"""The routes of the server."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Body as JsonBody
from fastapi import FastAPI, Form, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ov_specdec.openai.audio import (
    FILE,
    MEDIA_TYPES,
    TranscriptionAnswer,
    TranscriptionForm,
    TranslationForm,
)
from ov_specdec.openai.audio import read_form as read_fields
from ov_specdec.openai.body import Body, read
from ov_specdec.openai.completions import CompletionAnswer
from ov_specdec.openai.errors import ApiError, Json, invalid
from ov_specdec.openai.requests import (
    ChatBody,
    CompletionBody,
    GenerationBody,
    ResponsesBody,
    read_ask,
)
from ov_specdec.openai.responses import ResponseAnswer
from ov_specdec.options.checks import suggest
from ov_specdec.server.access import Access, Record, error_response
from ov_specdec.server.bodies import read_form, read_json
from ov_specdec.server.reply import AnyAnswer, Reply, Running
from ov_specdec.server.service import Grow, Service
from ov_specdec.server.stream import Stream, run_in_thread
from ov_specdec.server.tokens import DetokenizeBody, TokenizeBody
from ov_specdec.server.transcriptions import Job
from ov_specdec.speech.segments import TranscriptionChunk

BODIES: Mapping[str, type[Body]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/audio/transcriptions": TranscriptionForm,
    "/v1/audio/translations": TranslationForm,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
"""What is posted, by path."""


class ReadsItself(APIRoute):
    """A route whose endpoint reads the body: FastAPI only describes it.

    OpenAI's errors name one field, in their own shape, and bodies have limits of size and time.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, without the parameter that describes its body."""
        return partial(self.endpoint, body=None)


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
        responses={"default": {"description": "An error, in OpenAI's shape."}},
    )
    app.add_exception_handler(HTTPException, _answer_http_error)
    settings = service.settings
    for path, kind in BODIES.items():
        _add_post(app, path, kind, service)
    _add_state(app, service)
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


def _add_post(app: FastAPI, path: str, kind: type[Body], service: Service) -> None:
    """Add a route that takes bodies of this kind."""
    is_form = issubclass(kind, TranslationForm)
    media_types = ["text/event-stream"] * ("stream" in kind.model_fields)
    media_types += [each.partition(";")[0] for each in MEDIA_TYPES.values()] * is_form
    described = Annotated[
        kind,  # type: ignore[valid-type]
        Form(media_type="multipart/form-data") if is_form else JsonBody(),
    ]

    async def handle(request: Request, body: described) -> Any:  # noqa: ARG001
        record: Record = request.state.record
        if issubclass(kind, GenerationBody):
            return Reply(service, record, partial(_generation, kind, request, service))
        if issubclass(kind, TranslationForm):
            return Reply(service, record, partial(_transcription, kind, request, service))
        settings = service.settings
        with service.entered(record.tenant):
            given: Any = await read_json(request, settings, lambda c: read(kind, c, service.rules))
            service.check_model(given.model)
            engine, most = service.engine, settings.max_request_tokens
            return await run_in_thread(lambda: JSONResponse(given.answer(engine, most)))

    app.router.add_api_route(
        path,
        handle,
        methods=["POST"],
        name=path.removeprefix("/v1/").strip("/").replace("/", "_"),
        description=kind.__doc__,
        responses={200: {"content": {each: {} for each in media_types}}},
        route_class_override=ReadsItself,
    )


@asynccontextmanager
async def _generation(
    kind: type[GenerationBody],
    request: Request,
    service: Service,
    grow: Grow,
) -> AsyncIterator[tuple[AnyAnswer, Running]]:
    """Read a request for texts."""
    record: Record = request.state.record
    settings = service.settings
    ask = await read_json(request, settings, lambda body: read_ask(kind, body, service.rules))
    record.user = ask.user
    service.check_model(ask.model)
    grow(ask.num_choices, ask.n)
    tokenizer = service.engine.tokenizer
    if ask.endpoint != "completions" and tokenizer.chat_template is None:
        raise invalid(
            "messages" if ask.endpoint == "chat" else "input",
            "the model has no chat template: send a text to /v1/completions, or start the "
            "server with --chat-template FILE",
        )
    make = ResponseAnswer if ask.endpoint == "responses" else CompletionAnswer
    running = partial(service.engine.running, ask, record.tenant)
    yield make(ask, settings.model_name, tokenizer), running


@asynccontextmanager
async def _transcription(
    kind: type[TranslationForm], request: Request, service: Service, _: object
) -> AsyncIterator[tuple[AnyAnswer, Running]]:
    """Read a request for a transcription."""
    record: Record = request.state.record
    texts, recording = await read_form(request, service.settings)
    ask = read_fields(kind, texts, service.rules)
    if recording is None:
        raise invalid(FILE, "file is missing: send the recording as a file")
    with recording:
        record.user = ask.user
        service.check_model(ask.model)

        def running(stream: Stream[TranscriptionChunk]) -> AbstractAsyncContextManager[None]:
            return service.speech.running(Job(ask, recording, record.tenant, stream))

        yield TranscriptionAnswer(ask), running


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/")
    def endpoints() -> Json:
        """The paths of the server."""
        return {"name": "ov-specdec", "endpoints": _paths(app), "documentation": "/docs"}

    @app.get("/v1/models/", include_in_schema=False)  # else the name of a model, and empty
    @app.get("/v1/models")
    def models() -> Json:
        """The model that is served."""
        return {"object": "list", "data": [*map(service.describe_model, service.model_names)]}

    @app.get("/v1/models/{model:path}")
    def model(model: str) -> Json:
        """The model, if it has this name."""
        service.check_model(model)
        return service.describe_model(model)

    @app.get("/health")
    async def health() -> Json:
        """Whether the server accepts and answers requests."""
        await service.check_health()
        return {"status": "ok"}

    @app.get("/version")
    def show_version() -> Json:
        """The version of ov-specdec."""
        return {"version": version("ov-specdec")}

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
