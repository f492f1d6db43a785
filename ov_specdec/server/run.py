"""Runs the server: loads the models while it listens already, and ends when it is told to."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.server.app import make_app
from ov_specdec.server.engine import LocalEngine
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings
from ov_specdec.server.transcriptions import Transcriptions
from ov_specdec.speech_pipeline import SpeechPipeline

GRACE = 5.0
"""Seconds beside `shutdown_timeout` in which the last answers are sent."""


SHOW_CURSOR = "\x1b[?25h"

KEEP_ALIVE = 30
"""Seconds that an idle connection stays open: longer than clients keep theirs, 5 with httpx and so
with OpenAI's. Otherwise the server closes one now and then just as a request is sent on it."""


class Server(uvicorn.Server):
    """Uvicorn, which tells the service that it is to end before it waits for running requests."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def main_loop(self) -> None:
        """Serve until a signal comes."""
        await super().main_loop()
        self._service.stop()


@dataclass(frozen=True)
class Binding:
    """Where a server listens. uds: path of a Unix socket, in place of host and port.

    ssl_certfile, ssl_keyfile: PEM files for TLS. root_path: prefix that a proxy takes off paths.
    """

    host: str
    port: int
    uds: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    root_path: str = ""


def open_engine(
    pipeline: SpeculativePipeline | SpeechPipeline, settings: Settings
) -> LocalEngine | Transcriptions:
    """What serves a pipeline in this process."""
    if isinstance(pipeline, SpeechPipeline):
        return Transcriptions(pipeline, settings)
    return LocalEngine(pipeline, settings)


def serve(
    load: Callable[[], SpeculativePipeline | SpeechPipeline],
    settings: Settings,
    binding: Binding,
    on_ready: Callable[[], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C. Then no request is taken, and running ones may end.

    load: makes the pipeline; while it does, requests are answered with 503, and a signal ends the
    process. What it raises ends the server, and is raised. on_ready: called when requests are
    taken.
    """
    service = Service(settings)
    failures: list[BaseException] = []

    async def load_models() -> None:
        try:
            with _signals_end_all():
                pipeline = await asyncio.to_thread(load)
            service.take(open_engine(pipeline, settings))
            on_ready()
        except BaseException as error:
            failures.append(error)
            server.should_exit = True
            if not isinstance(error, Exception):
                raise

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        loading = asyncio.create_task(load_models())
        yield
        await asyncio.gather(loading, return_exceptions=True)
        await asyncio.to_thread(service.close)

    config = uvicorn.Config(
        make_app(service, lifespan),
        **asdict(binding),
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(settings.shutdown_timeout + GRACE),
    )
    server = Server(config, service)
    with _signals_end_nothing():
        server.run()
    if binding.uds is not None:  # uvicorn leaves it behind
        Path(binding.uds).unlink(missing_ok=True)
    if failures:
        raise failures[0]


def _signals_end_all() -> AbstractContextManager[None]:
    """While models load there is nothing to finish, and their thread cannot be told to end."""

    def leave(*_: object) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)  # a spinner hides it
            sys.stderr.flush()
        os._exit(0)

    return _on_signals(leave)


def _signals_end_nothing() -> AbstractContextManager[None]:
    """When it has ended, uvicorn raises the signals again that it was told to end by."""
    return _on_signals(lambda *_: None)


@contextmanager
def _on_signals(handle: Callable[..., None]) -> Iterator[None]:
    """Handle signals that are to end the process. In the main thread."""
    before = {sig: signal.signal(sig, handle) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
