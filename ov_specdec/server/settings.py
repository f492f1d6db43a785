"""Settings of a server."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ov_specdec.checks import require_bool, require_int, require_number, require_text
from ov_specdec.errors import OptionError
from ov_specdec.server.stream import MAX_UNREAD


@dataclass(frozen=True)
class Settings:
    """Settings of the server besides the models.

    model_name: served name of the model. aliases: further names of it in requests. api_keys: valid
    keys; none: no key is needed. max_queue: waiting requests, besides `max_batch_size` running
    ones, or one for recordings. queue_timeout: maximum seconds in the queue. request_timeout:
    seconds from arrival to the last token; None: no limit. max_request_tokens: see `limit_work`.
    max_audio_seconds: of a recording. max_body: bytes. body_timeout: seconds for a body to arrive.
    step_timeout: seconds after which a step counts as hung. shutdown_timeout: seconds for running
    requests to end. cors_origins: web sites that may call it. allowed_hosts: accepted Host headers;
    none: any. temperature: default of requests; None: the model's recommendation, else 1.
    max_unread: chunks that a stream may be ahead of its reader. strict_fields: refuse unknown
    fields. Raises `OptionError` for invalid values.
    """

    model_name: str = "ov-specdec"
    aliases: Sequence[str] = ()
    api_keys: Sequence[str] = field(default=(), repr=False)
    max_batch_size: int = 16
    max_queue: int = 128
    queue_timeout: float = 120.0
    request_timeout: float | None = None
    max_request_tokens: int = 131_072
    max_audio_seconds: float = 3600.0
    max_body: int = 4_000_000
    body_timeout: float = 30.0
    step_timeout: float = 60.0
    shutdown_timeout: float = 30.0
    cors_origins: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    temperature: float | None = None
    max_unread: int = MAX_UNREAD
    strict_fields: bool = False

    def __post_init__(self) -> None:
        require_text("model_name", self.model_name)
        require_int("max_queue", self.max_queue, low=0)
        for name in ("max_batch_size", "max_request_tokens", "max_body", "max_unread"):
            require_int(name, getattr(self, name), low=1)
        for name in ("max_audio_seconds", "queue_timeout", "body_timeout", "step_timeout"):
            require_number(name, getattr(self, name), above=0.0)
        require_number("shutdown_timeout", self.shutdown_timeout, low=0.0)
        if self.request_timeout is not None:
            require_number("request_timeout", self.request_timeout, above=0.0)
        if self.temperature is not None:
            require_number("temperature", self.temperature, low=0.0)
        require_bool("strict_fields", self.strict_fields)
        _require_list("aliases", self.aliases)
        _require_list("cors_origins", self.cors_origins)
        _require_list("allowed_hosts", self.allowed_hosts)
        _require_list("api_keys", self.api_keys)
        for number, key in enumerate(self.api_keys, start=1):
            _require_key(number, key)

    def without_keys(self) -> "Settings":
        """The same settings without keys, for a replica."""
        return replace(self, api_keys=())


def _require_list(name: str, values: object) -> None:
    # A string would count as a list of letters. It is not shown: it may be a key.
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise OptionError(f"{name} must be a list of texts, even of one")


def _require_key(number: int, key: str) -> None:
    """Refuse a key that anyone or no one could send; the message does not show it."""
    if not key:
        raise OptionError(f"API key {number} is empty, so anyone could send it: leave it out")
    if key != key.strip() or not key.isascii() or not key.isprintable():
        raise OptionError(
            f"API key {number} cannot be sent in a header: use ASCII characters, without spaces "
            "around them"
        )
