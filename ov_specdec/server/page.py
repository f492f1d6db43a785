"""The page to try the model on: three files, which fetch nothing from elsewhere."""

from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response

FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
"""What is answered under which path: file and media type."""

HEADERS = {
    "cache-control": "no-cache",
    # The browser itself sees to it that nothing but these files and this server is asked.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
}


def add_page(app: FastAPI) -> None:
    """Answer the paths of the page."""
    folder = files("ov_specdec.server").joinpath("static")
    for path, (name, media_type) in FILES.items():
        response = Response(folder.joinpath(name).read_bytes(), 200, HEADERS, media_type)
        app.add_api_route(
            path,
            lambda response=response: response,
            methods=["GET", "HEAD"],
            include_in_schema=False,
        )
