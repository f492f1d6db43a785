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
from pydantic import Field
from starlette.exceptions import HTTPException

from ov_specdec.errors import ContextLengthError, suggest
from ov_specdec.openai.audio import MEDIA_TYPES, TranscriptionForm, TranslationForm, read_form
from ov_specdec.openai.body import Body, read, with_options
from ov_specdec.openai.errors import ApiError, Json, invalid
from ov_specdec.openai.messages import Messages, read_messages
from ov_specdec.openai.requests import ChatBody, CompletionBody, GenerationBody, ResponsesBody
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.server.access import Access, error_response
from ov_specdec.server.engine import EngineClient
from ov_specdec.server.limits import Grow, parse_json, read_bytes, read_fields
from ov_specdec.server.reply import Reply
from ov_specdec.server.service import Service
from ov_specdec.server.stream import run_in_thread
from ov_specdec.text.detokenizer import as_text
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import Prompt, encode_prompt


@with_options(
    GenerationOptions,
    (
        *("add_special_tokens", "chat_template_kwargs"),
        *("add_generation_prompt", "continue_final_message"),
    ),
)
class TokenizeBody(Body):
    """A prompt, or messages in the chat template, to encode."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None

    def answer(self, engine: EngineClient, most: int) -> Json:
        """The ids of the prompt. most: maximum tokens of a request."""
        if (self.prompt is None) == (self.messages is None):
            raise invalid("prompt", "give either a prompt or messages")
        options = GenerationOptions(**self.given_options, apply_chat_template=self.prompt is None)
        messages = [message.for_template() for message in self.messages or ()]
        prompt: Prompt = read_messages(messages) if self.prompt is None else self.prompt
        most = max(engine.max_length, most)
        try:
            ids = encode_prompt(prompt, options, engine.tokenizer, GeneratedTokens(), most)
        except ContextLengthError as error:
            message = f"the prompt has more than max_request_tokens={most} tokens: send less"
            raise invalid(None, message, "too_many_tokens") from error
        pieces = map(as_text, map(engine.tokenizer.piece, ids))
        return {
            "count": len(ids),
            "max_model_len": engine.max_length,
            "tokens": ids,
            "token_strs": [*pieces] if self.return_token_strs else None,
        }


class DetokenizeBody(Body):
    """Token ids to decode."""

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]

    def answer(self, engine: EngineClient, _: int) -> Json:
        """The text of ids."""
        known = range(engine.tokenizer.vocab_size)
        if unknown := [token for token in self.tokens if token not in known]:
            raise invalid("tokens", f"tokens holds {unknown[0]}, which the model does not have")
        return {"prompt": engine.tokenizer.decode_all(self.tokens)}


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
    app.add_middleware(Access, settings=settings, on_end=service.metrics.observe)
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

    @asynccontextmanager
    async def entered(request: Request) -> AsyncIterator[tuple[Any, Grow]]:
        tenant, client = request.state.record.tenant, request.client
        with service.slot(tenant):  # what there is no room for is not read
            service.check_input("recordings" if is_form else "text")
        arriving: Any = (read_fields if is_form else read_bytes)(request, service.settings)
        body: Any = await service.arrivals.wait_for(arriving, client and client.host)
        with service.slot(tenant) as grow:
            if issubclass(kind, TranslationForm):
                yield read_form(kind, body, service.unknown), grow
            else:
                yield await parse_json(body, lambda json: read(kind, json, service.unknown)), grow

    async def handle(request: Request, body: described) -> Any:  # noqa: ARG001
        if issubclass(kind, GenerationBody | TranslationForm):
            return Reply(service, request.state.record, entered(request))
        async with entered(request) as (content, _):
            service.check_model(content.model)
            engine, most = service.engine, service.settings.max_request_tokens
            return await run_in_thread(lambda: JSONResponse(content.answer(engine, most)))

    app.router.add_api_route(
        path,
        handle,
        methods=["POST"],
        name=path.removeprefix("/v1/").strip("/").replace("/", "_"),
        description=kind.__doc__,
        responses={200: {"content": {each: {} for each in media_types}}},
        route_class_override=ReadsItself,
    )


def _add_state(app: FastAPI, service: Service) -> None:
    names = service.settings.served_model_name

    @app.get("/")
    def endpoints() -> Json:
        """The paths of the server."""
        return {"name": "ov-specdec", "endpoints": _paths(app), "documentation": "/docs"}

    @app.get("/v1/models/", include_in_schema=False)  # else the name of a model, and empty
    @app.get("/v1/models")
    def models() -> Json:
        """The model that is served."""
        return {"object": "list", "data": [*map(service.describe_model, names)]}

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
