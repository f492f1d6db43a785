"""Settings of a server, with their descriptions for the command line."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from ov_specdec.description import About, check_described
from ov_specdec.errors import OptionError
from ov_specdec.server.stream import MAX_UNREAD


def _require_list(name: str, values: object) -> None:
    # A string would count as a list of letters. It is not shown: it may be a key.
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise OptionError(f"{name} must be a list of texts, even of one")


def _require_keys(name: str, keys: Sequence[str]) -> None:
    """Refuse a key that anyone or no one could send; the message does not show it."""
    _require_list(name, keys)
    for number, key in enumerate(keys, start=1):
        if not key:
            raise OptionError(f"API key {number} is empty, so anyone could send it: leave it out")
        if key != key.strip() or not key.isascii() or not key.isprintable():
            raise OptionError(
                f"API key {number} cannot be sent in a header: use ASCII characters, without "
                "spaces around them"
            )


@dataclass(frozen=True)
class Binding:
    """The address of a server."""

    host: Annotated[str, About("Address to serve on.")] = "127.0.0.1"
    port: Annotated[int, About("Port to serve on; 0 takes any free port.")] = 8000
    uds: Annotated[
        str | None, About("Serve on this Unix socket instead of --host and --port.", metavar="PATH")
    ] = None
    ssl_certfile: Annotated[
        str | None, About("Certificate for TLS, as a PEM file.", unset="no TLS", metavar="F")
    ] = None
    ssl_keyfile: Annotated[
        str | None, About("Key of the certificate, as a PEM file.", metavar="F")
    ] = None
    root_path: Annotated[
        str, About("Path prefix that a reverse proxy strips.", unset="none", metavar="PATH")
    ] = ""

    @property
    def url(self) -> str:
        """The server's URL."""
        if self.uds is not None:
            return f"unix:{self.uds}"
        scheme = "http" if self.ssl_certfile is None else "https"
        return f"{scheme}://{self.host}:{self.port}"


@dataclass(frozen=True)
class Settings:
    """Settings of the server besides the models; raises `OptionError` for invalid values.

    Annotations hold the description of each: see `About`.
    """

    model_name: Annotated[str, About("Served name of the model.", flag=None)] = "ov-specdec"
    aliases: Annotated[
        Sequence[str],
        About("Further names of the model in requests.", flag=None, check=_require_list),
    ] = ()
    api_keys: Annotated[
        Sequence[str],
        About(
            "Require this API key, which other users can see in the machine's process list.",
            metavar="KEY",
            flag="api-key",
            check=_require_keys,
        ),
    ] = field(default=(), repr=False)
    strict_fields: Annotated[
        bool,
        About(
            "Refuse unknown fields of requests.",
            unset="ignore them, with a warning for each name",
        ),
    ] = False
    max_batch_size: Annotated[
        int, About("Maximum running requests; recordings run one by one.", low=1, flag=None)
    ] = 16
    max_queue: Annotated[
        int,
        About(
            "Maximum waiting requests, besides running ones; others are rejected with 429.", low=0
        ),
    ] = 128
    queue_timeout: Annotated[
        float,
        About(
            "Maximum seconds in the queue; a request is then rejected with 503.",
            above=0.0,
            metavar="S",
        ),
    ] = 120.0
    request_timeout: Annotated[
        float | None,
        About(
            "Maximum seconds of a request; it then ends with 504.",
            "From its arrival to the last token.",
            above=0.0,
            metavar="S",
            unset="none",
        ),
    ] = None
    max_request_tokens: Annotated[
        int,
        About(
            "Maximum tokens of a request: prompts, outputs and top log-probabilities of all "
            "choices; others are rejected with 400.",
            "See `limit_work`.",
            low=1,
        ),
    ] = 131_072
    max_audio_seconds: Annotated[
        float,
        About(
            "Maximum length of a recording in seconds; others are rejected with 400.",
            above=0.0,
            metavar="S",
        ),
    ] = 3600.0
    shutdown_timeout: Annotated[
        float,
        About("Seconds for running requests to end after SIGTERM.", low=0.0, metavar="S"),
    ] = 30.0
    max_body: Annotated[int, About("Maximum bytes of a body.", low=1, flag=None)] = 4_000_000
    cors_origins: Annotated[
        Sequence[str],
        About(
            "Allow pages of this web site to call the server.",
            unset="none",
            metavar="URL",
            flag="cors-origin",
            check=_require_list,
        ),
    ] = ()
    allowed_hosts: Annotated[
        Sequence[str],
        About(
            "Accept requests for this host name.",
            unset="any; on a loopback address without keys: localhost, 127.0.0.1 and [::1]",
            metavar="NAME",
            check=_require_list,
        ),
    ] = ()
    body_timeout: Annotated[
        float, About("Maximum seconds for a body to arrive.", above=0.0, flag=None)
    ] = 30.0
    step_timeout: Annotated[
        float, About("Seconds after which a step counts as hung.", above=0.0, flag=None)
    ] = 60.0
    temperature: Annotated[
        float | None,
        About(
            "Default of requests.", low=0.0, unset="the model's recommendation, else 1", flag=None
        ),
    ] = None
    max_unread: Annotated[
        int, About("Maximum chunks of a stream ahead of its reader.", low=1, flag=None)
    ] = MAX_UNREAD

    def __post_init__(self) -> None:
        check_described(self)

    def without_keys(self) -> "Settings":
        """The same settings without keys, for a replica."""
        return replace(self, api_keys=())
