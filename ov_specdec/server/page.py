"""The page to try the model: three files without external resources."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import Route

FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
"""File and media type by path."""

HEADERS = {
    "cache-control": "no-cache",
    # The browser enforces that the page calls only this server.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
}


def add_page(app: FastAPI) -> None:
    """Add the routes of the page."""
    folder = files("ov_specdec.server").joinpath("static")
    for path, (name, media_type) in FILES.items():
        content = folder.joinpath(name).read_bytes()
        app.router.routes.append(Route(path, _answer_with(content, media_type)))


def _answer_with(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:  # noqa: ARG001
        return Response(content, 200, HEADERS, media_type)

    return answer
