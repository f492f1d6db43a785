"""Middleware for every request: id, host, API key, unexpected errors; and the log, in JSON."""

import hmac
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from hashlib import sha256
from itertools import product
from time import monotonic
from typing import Any
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ov_specdec.api.dialect import Dialect
from ov_specdec.api.errors import FIELDS, ApiError, from_exception
from ov_specdec.dialects import DIALECTS, dialect_of
from ov_specdec.errors import shorten
from ov_specdec.results.chunks import ResultBuilder
from ov_specdec.server.settings import LOOPBACK_NAMES, Settings

log = logging.getLogger("ov_specdec.server")

POLLED = ("/health", "/metrics")
"""Paths that monitors read."""

OPEN = (*POLLED, "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json")
"""Paths that need no key: they reveal nothing of requests and answers."""

MAX_USER, MAX_LOGGED = 128, 1024
"""Maximum characters in the log of a user's name, and of paths and errors, which may repeat what a
request holds."""

CLIENT_LEFT = 499
"""Status in the log of a request whose client disconnected, as in nginx."""


@dataclass
class Record:
    """What is known of one request, for log and metrics. outputs: of its generations, so far.

    queued: seconds from its checks to its admission.
    """

    method: str
    path: str
    id: str = field(default_factory=lambda: uuid4().hex)
    tenant: str | None = None
    status: int = 0
    error: str | None = None
    code: str | None = None
    user: str | None = None
    outputs: Sequence[ResultBuilder] = ()
    arrived: float = field(default_factory=monotonic)
    queued: float | None = None

    def fail(self, error: Exception, names: Mapping[str, str] = FIELDS) -> ApiError:
        """Record an exception, and give the answer for it; unexpected ones are logged too."""
        failure = from_exception(error, self.id, names)
        if failure.status == 500 and failure is not error:
            log.error("request %s has failed", self.id, exc_info=error)
        self.status, self.error, self.code = failure.status, failure.message, failure.code
        return failure

    def as_dict(self) -> dict[str, Any]:
        """The known fields, for one line of JSON."""
        began = [output.first_token for output in self.outputs if output.first_token is not None]
        ended = [output.finish_reason for output in self.outputs if output.finish_reason]
        known = {
            "event": "request",
            "id": self.id,
            "method": self.method,
            "path": self.path[:MAX_LOGGED],
            "status": self.status,
            "seconds": round(monotonic() - self.arrived, 4),
            "user": self.user and self.user[:MAX_USER],
            "completion_tokens": sum(len(output.token_ids) for output in self.outputs) or None,
            "seconds_to_first": round(min(began) - self.arrived, 4) if began else None,
            "finish_reason": ended[-1] if ended else None,
            "client_left": True if self.status == CLIENT_LEFT else None,
            "error": self.error and self.error[:MAX_LOGGED],
        }
        return {name: value for name, value in known.items() if value is not None}


class Access:
    """ASGI middleware. on_end: called with what was posted, at its end."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        on_end: Callable[[Record], None],
        dialects: Sequence[Dialect] = DIALECTS,
    ) -> None:
        self._app = app
        self._dialects = dialects
        hosts = settings.allowed_hosts and (*LOOPBACK_NAMES, *settings.allowed_hosts)
        self._hosts = [*dict.fromkeys(map(str.lower, hosts))]
        self._digests = [digest_of(key) for key in settings.api_keys]
        self._key_headers = [name for each in dialects for name in each.key_headers]
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; pass other events on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record, route = Record(scope["method"], scope["path"]), _route(scope)
        dialect = dialect_of(route, self._dialects)
        scope.setdefault("state", {}).update(record=record, dialect=dialect)
        has_begun = False
        if scope["method"] == "HEAD":  # as GET; uvicorn leaves the body out
            scope = {**scope, "method": "GET"}

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                record.status = record.status or message["status"]
                headers = [*message["headers"], (b"x-request-id", record.id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            self._check_host(scope)
            if self._digests and route not in OPEN:
                self._check_key(scope, record, dialect)
            await self._app(scope, receive, sending)
        except ClientDisconnect:  # before its body has arrived
            record.status = CLIENT_LEFT
        except Exception as error:
            failure = record.fail(error)
            if not has_begun:
                await error_response(failure, dialect)(scope, receive, sending)
        finally:
            if record.method == "POST":
                self._on_end(record)
            level = logging.DEBUG if route in POLLED else logging.INFO
            log.log(level, "request", extra={"record": record})

    def _check_host(self, scope: Scope) -> None:
        """Refuse other hosts: else a web site could reach the server by DNS rebinding."""
        given = Request(scope).headers.get("host", "").lower()
        host = given if given.endswith("]") else given.rpartition(":")[0] or given  # without port
        if self._hosts and not any(
            host == known or (known.startswith("*") and host.endswith(known[1:]))
            for known in self._hosts
        ):
            raise ApiError(
                400,
                f"this server does not answer to the host {shorten(host)}: send requests to "
                f"{' or '.join(self._hosts)}, or start it with --allowed-hosts NAME",
                code="unknown_host",
            )

    def _check_key(self, scope: Scope, record: Record, dialect: Dialect) -> None:
        headers = Request(scope).headers
        kind, _, key = headers.get("authorization", "").partition(" ")
        # Dialects share paths, such as /v1/models.
        keys = [key if kind.lower() == "bearer" else "", *map(headers.get, self._key_headers)]
        digests = [digest_of(key.strip()) for key in keys if key]
        pairs = product(digests, self._digests)
        valid = [digest for digest, own in pairs if hmac.compare_digest(digest, own)]
        if not valid:
            ways = ("Authorization: Bearer KEY", *(f"{n}: KEY" for n in dialect.key_headers))
            how = " or ".join(f"'{way}'" for way in ways)
            raise ApiError(401, f"no valid API key was given: send {how}", code="invalid_api_key")
        # Distinguishes tenants without revealing their keys.
        record.tenant = valid[0].hex()[:16]


def digest_of(key: str) -> bytes:
    """The digest of a key. Digests have one length, so comparisons take constant time."""
    return sha256(key.encode()).digest()


def error_response(error: ApiError, dialect: Dialect) -> JSONResponse:
    """An error as a response."""
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(dialect.error(error), error.status, headers)


def _route(scope: Scope) -> str:
    """The path for routing, without the prefix at which the application is mounted."""
    path, root = str(scope["path"]), scope.get("root_path", "")
    rest = path.removeprefix(root)
    # As in Starlette: a prefix without a slash after it is part of a longer name.
    return rest if rest.startswith("/") else path


class JsonLines(logging.Formatter):
    """A log record as JSON: time, level, and a message or the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of ASCII; a traceback is one of its values.

        Escaped, no text of a request can end the line for a reader, or control a terminal.
        """
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(
            timespec="milliseconds"
        )
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower()}
        request = getattr(record, "record", None)
        if isinstance(request, Record):
            line.update(request.as_dict())
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_log(level: str) -> None:
    """Send the server's log to stderr. level: debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("ov_specdec", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    # uvicorn's messages at each start and stop.
    logging.getLogger("uvicorn.error").setLevel("WARNING" if level == "info" else level.upper())
