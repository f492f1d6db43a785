"""Settings of a server and its address, described for the command line."""

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from ov_specdec.errors import OptionError
from ov_specdec.options.foreign_names import HINTS
from ov_specdec.options.model import Options, Several, option

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine in URLs."""

MAX_TEXT, MAX_RECORDING = 4.0, 25.0
"""Default maximum megabytes of a body; for recordings as in OpenAI's reference."""


def _check_keys(keys: Sequence[str]) -> Sequence[str]:
    """Refuse a key that anyone or no one could send; the message does not show it."""
    for number, key in enumerate(keys, start=1):
        if not key:
            raise OptionError(f"API key {number} is empty, so anyone could send it: leave it out")
        if key != key.strip() or not key.isascii() or not key.isprintable():
            raise OptionError(
                f"API key {number} cannot be sent in a header: use ASCII characters, without "
                "spaces around them"
            )
    return keys


Host = Annotated[str, AfterValidator(lambda host: host.removeprefix("[").removesuffix("]"))]
"""An address or a name; one of IPv6 without the brackets that it has in URLs."""


class Binding(Options):
    """The address of a server."""

    host: Host = option("127.0.0.1", "Address to serve on.", group="Address")
    port: int = option(8000, "Port to serve on; 0 takes any free port.", ge=0, le=65535)
    uds: str | None = option(
        None, "Serve on this Unix socket instead of --host and --port.", metavar="PATH"
    )
    ssl_certfile: str | None = option(
        None, "Certificate for TLS, as a PEM file.", unset="no TLS", metavar="F"
    )
    ssl_keyfile: str | None = option(None, "Key of the certificate, as a PEM file.", metavar="F")
    root_path: str = option(
        "", "Path prefix that a reverse proxy strips.", unset="none", metavar="PATH"
    )

    @property
    def url(self) -> str:
        """The server's URL."""
        if self.uds is not None:
            return f"unix:{self.uds}"
        scheme = "http" if self.ssl_certfile is None else "https"
        return f"{scheme}://{in_url(self.host)}:{self.port}"


def in_url(host: str) -> str:
    """A host as URLs have it: brackets are around an address of IPv6."""
    return f"[{host}]" if ":" in host else host


def check_address(host: str, port: int | None) -> int | None:
    """Refuse a host and port that cannot be bound. Returns the port.

    port: 0 takes a free one; None leaves the choice to the server. Raises `OptionError`.
    """
    try:
        family, *_, found = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.create_server(found[:2], family=family) as server:
            return int(server.getsockname()[1]) if port == 0 else port
    except (OSError, UnicodeError) as error:
        shown = f"--host '{host}'" if port is None else f"--host '{host}' --port {port}"
        reason, *_ = str(error.args[-1]).split(" (while")  # the address is named already
        raise OptionError(
            f"{shown} cannot be used ({reason}): choose another --port, or an address of this "
            "machine, such as 127.0.0.1"
        ) from error


def check_socket(path: str) -> None:
    """Refuse the path of a Unix socket that cannot be made. Raises `OptionError`."""
    file = Path(path)
    if file.is_socket():  # of a server that was killed: it is replaced
        return
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
        file.unlink()
    except OSError as error:
        raise OptionError(
            f"{{uds}} cannot be used ({error.strerror or error}): give another path", uds=path
        ) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Settings(Options):
    """Settings of the server besides the models; raises `OptionError` for invalid values."""

    noun: ClassVar[str] = "setting"
    hints: ClassVar[Mapping[str, str]] = {
        **HINTS,
        "max_batch_size": "put it under pipeline",
        "model_name": "served_model_name",
    }

    served_model_name: Annotated[Several[str], Field(min_length=1)] = option(
        ("ov-specdec",),
        "Name of the model; answers have the first one.",
        unset="its folder's name",
        metavar="NAME",
    )
    api_keys: Annotated[Several[str], AfterValidator(_check_keys)] = option(
        (),
        "Require this API key, which other users can see in the machine's process list.",
        metavar="KEY",
        flag="api-key",
        is_secret=True,
        group="Access",
    )
    strict_fields: bool = option(
        False,
        "Refuse unknown fields of requests.",
        unset="ignore them, with a warning for each name",
        group="Requests",
    )
    default_max_tokens: int | None = option(
        None, "Default of max_tokens in requests.", ge=1, unset="the rest of the context"
    )
    max_queue: int = option(
        128, "Maximum waiting requests, besides running ones; others are rejected with 429.", ge=0
    )
    queue_timeout: float = option(
        120.0,
        "Maximum seconds in the queue; a request is then rejected with 503.",
        gt=0,
        metavar="S",
    )
    request_timeout: float | None = option(
        None,
        "Maximum seconds of a request; it then ends with 504.",
        more="From its arrival to the last token.",
        gt=0,
        metavar="S",
        unset="none",
    )
    max_request_tokens: int = option(
        131_072,
        "Maximum tokens of a request: prompts, outputs and top log-probabilities of all "
        "choices; others are rejected with 400.",
        more="See `limit_work`.",
        ge=1,
    )
    max_audio_seconds: float = option(
        3600.0,
        "Maximum length of a recording in seconds; others are rejected with 400.",
        gt=0,
        metavar="S",
    )
    shutdown_timeout: float = option(
        30.0, "Seconds for running requests to end after SIGTERM.", ge=0, metavar="S"
    )
    max_body_size: float | None = option(
        None,
        "Maximum body of a request in MB; others are rejected with 413.",
        gt=0,
        unset=f"{MAX_TEXT:g}; {MAX_RECORDING:g} for recordings",
        metavar="MB",
    )
    cors_origins: Several[str] = option(
        (),
        "Allow pages of this web site to call the server.",
        unset="none",
        metavar="URL",
        flag="cors-origin",
        group="Access",
    )
    allowed_hosts: Several[str] = option(
        (),
        "Accept requests for this host name, besides localhost, 127.0.0.1 and [::1].",
        unset="any; on a loopback address without keys: those three only",
        metavar="NAME",
    )

    @property
    def model_name(self) -> str:
        """The name of the model in answers."""
        return self.served_model_name[0]
