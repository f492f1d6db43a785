"""What a server is told besides the models."""

from dataclasses import dataclass

from ov_specdec.server.stream import MAX_UNREAD


@dataclass(frozen=True)
class Settings:
    """What the server is told besides the models.

    model_name: under which it serves them. api_keys: any of them opens it; none: it is open.
    max_queue: requests that may wait beside the `max_batch_size` that run. request_timeout: seconds
    from arrival to the last token; None: any. max_body: bytes. body_timeout: seconds in which a
    body has to arrive. step_timeout: seconds after which a step counts as hung. shutdown_timeout:
    seconds that running requests get to end. cors_origins: web sites that may call it.
    temperature: of requests that give none; None leaves it to the pipeline.
    """

    model_name: str = "ov-specdec"
    api_keys: tuple[str, ...] = ()
    max_batch_size: int = 16
    max_queue: int = 128
    request_timeout: float | None = None
    max_body: int = 4_000_000
    body_timeout: float = 30.0
    step_timeout: float = 60.0
    shutdown_timeout: float = 30.0
    cors_origins: tuple[str, ...] = ()
    temperature: float | None = 1.0
    max_unread: int = MAX_UNREAD
