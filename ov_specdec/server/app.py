"""The routes of the server: those of its dialects, and its own."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from inspect import signature
from typing import Annotated, Any

from fastapi import Body as JsonBody
from fastapi import FastAPI, Form, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ov_specdec.api import body as bodies
from ov_specdec.api.dialect import Dialect, Generating, Query, check_model
from ov_specdec.api.errors import ApiError, Json, from_exception
from ov_specdec.dialects import DIALECTS
from ov_specdec.errors import OptionError, suggest
from ov_specdec.server.access import Access, error_response
from ov_specdec.server.limits import Grow, parse_json, read_bytes, read_fields
from ov_specdec.server.reply import Reply
from ov_specdec.server.service import Service
from ov_specdec.server.stream import run_in_thread


class ReadsItself(APIRoute):
    """A route whose endpoint reads the body: FastAPI only describes it.

    Errors name one field, in the shape of a dialect, and bodies have limits of size and time.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, without the parameter that describes its body."""
        return partial(self.endpoint, body=None)


def make_app(
    service: Service,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
    dialects: Sequence[Dialect] = DIALECTS,
) -> FastAPI:
    """The application. lifespan: loads the models at the start, if given."""
    app = FastAPI(
        title="ov-specdec",
        version=version("ov-specdec"),
        description="Speculative decoding on OpenVINO.",
        lifespan=lifespan,
        responses={"default": {"description": "An error, in the shape of its interface."}},
    )
    app.add_exception_handler(HTTPException, _answer_http_error)
    settings = service.settings
    for dialect in dialects:
        for path, post in dialect.posts.items():
            _add_post(app, path, post, dialect, service)
    _add_state(app, service, dialects)
    app.add_middleware(Access, settings=settings, on_end=service.metrics.observe, dialects=dialects)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # OpenAI's client sends several of its own
            expose_headers=["retry-after", "x-request-id"],
        )
    return app


def _add_post(
    app: FastAPI, path: str, post: Generating | type[Query], dialect: Dialect, service: Service
) -> None:
    """Add a route that takes bodies."""
    kind = post.body if isinstance(post, Generating) else post
    media_types = [dialect.stream.media_type] * ("stream" in kind.model_fields)
    media_types += post.media_types if isinstance(post, Generating) else ()
    is_form = issubclass(kind, bodies.Form)
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
        read = partial(bodies.read, kind, unknown=service.unknown)
        with service.slot(tenant) as grow:
            yield (read(body) if is_form else await parse_json(body, read)), grow

    async def handle(request: Request, body: described) -> Any:  # noqa: ARG001
        if isinstance(post, Generating):
            record = request.state.record
            return Reply(service, record, entered(request), post, dialect.stream)
        async with entered(request) as (content, _):
            check_model(content.model, (served := service.model).names)
            try:
                return await run_in_thread(lambda: JSONResponse(content.answer(served)))
            except OptionError as error:
                raise from_exception(error, "", content.names) from error

    app.router.add_api_route(
        path,
        handle,
        methods=[kind.method],
        name=path.removeprefix("/v1/").strip("/").replace("/", "_"),
        description=kind.__doc__,
        responses={200: {"content": {each: {} for each in media_types}}},
        route_class_override=ReadsItself,
    )


def _add_page(app: FastAPI, path: str, page: Callable[..., Any], service: Service) -> None:
    """Add a route that shows a page of a dialect."""

    def show(**parameters: Any) -> Any:
        return page(service.model, **parameters)

    described: Any = show
    declared = signature(page)
    described.__signature__ = declared.replace(parameters=[*declared.parameters.values()][1:])
    # With a slash at the end it is not the next page, with an empty parameter.
    for each in (path,) if "{" in path else (path, f"{path}/"):
        app.router.add_api_route(
            each,
            described,
            methods=["GET"],
            name=page.__name__,
            description=page.__doc__,
            include_in_schema=each == path,
        )


def _add_state(app: FastAPI, service: Service, dialects: Sequence[Dialect]) -> None:
    """Add what shows the state of the server and its model."""

    @app.get("/")
    def endpoints() -> Json:
        """The paths of the server."""
        return {"name": "ov-specdec", "endpoints": _paths(app), "documentation": "/docs"}

    for dialect in dialects:
        for path, page in dialect.pages.items():
            _add_page(app, path, page, service)

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
    response = error_response(ApiError(error.status_code, message), request.state.dialect)
    response.headers.update(headers)
    return response


def _paths(app: FastAPI) -> list[str]:
    """The paths that hold no name of a model."""
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    return [route.path for route in routes if route.include_in_schema and "{" not in route.path]
