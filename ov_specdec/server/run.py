"""Runs the server: limits of its connections, models that load while it listens, shutdown."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from ov_specdec.errors import OptionError
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.server.app import make_app
from ov_specdec.server.engine import LocalEngine
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Binding, Settings
from ov_specdec.server.transcriptions import Transcriptions
from ov_specdec.speech_pipeline import SpeechPipeline

log = logging.getLogger("ov_specdec.server")


KEEP_ALIVE = 30
"""Seconds that an idle connection stays open: longer than clients keep theirs, which is 5 for httpx
and OpenAI's client. Otherwise the server could close a connection just as a request arrives."""

MAX_SMALL, SMALL = 1000, 256
"""A body may have so many chunks, or more if they have so many bytes on average. h11 takes 6 us for
a chunk of any size, in the thread that serves all connections."""


class Parser(h11.Connection):
    """Parses requests; refuses a body of many small chunks."""

    _num_chunks = _num_bytes = 0

    def next_event(self) -> Any:
        """See h11; raises `RemoteProtocolError`."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._num_chunks = self._num_bytes = 0
        elif isinstance(event, h11.Data):
            self._num_chunks += event.chunk_end
            self._num_bytes += len(event.data)
            if self._num_chunks > max(MAX_SMALL, self._num_bytes // SMALL):
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        return event


class Connection(H11Protocol):
    """A connection of uvicorn, with h11: httptools sets no limit to the size of headers.

    Uvicorn closes connections that are idle after a request. This closes those that wait for a
    head, or for the rest of a body that is answered already.
    """

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self.conn = Parser(h11.SERVER)
        self._watch(None)

    def _watch(self, seen: object) -> None:
        """Close the connection if it still waits for the same. seen: for what, at the last look."""
        is_waiting = self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE
        waits_for = (is_waiting, self.cycle)
        if is_waiting and waits_for == seen:
            self.timeout_keep_alive_handler()
        elif not self.transport.is_closing():
            self.loop.call_later(KEEP_ALIVE, self._watch, waits_for)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request, unless an answer has begun."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # no second answer, to the head before them
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()


class Server(uvicorn.Server):
    """Uvicorn that listens until running requests have ended; others are told 503 meanwhile."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def on_tick(self, counter: int) -> bool:
        """Whether to close the sockets. Called ten times a second."""
        is_due = await super().on_tick(counter)
        return is_due and (self._service.drain() or self.force_exit)


def open_engine(
    pipeline: SpeculativePipeline | SpeechPipeline, settings: Settings
) -> LocalEngine | Transcriptions:
    """The engine of a pipeline in this process."""
    if isinstance(pipeline, SpeechPipeline):
        return Transcriptions(pipeline, settings)
    return LocalEngine(pipeline, settings)


def serve(
    load: Callable[[], SpeculativePipeline | SpeechPipeline],
    settings: Settings,
    binding: Binding,
    on_ready: Callable[[], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C. Then reject new requests, and let running ones end.

    load: makes the pipeline; meanwhile requests are rejected with 503, and a signal ends the
    process. Its error ends the server, and is raised. on_ready: called when the server accepts
    requests.
    """
    service = Service(settings)
    failures: list[BaseException] = []

    async def load_models() -> None:
        try:
            # A thread that loads cannot be interrupted.
            with _on_signals(_leave):
                pipeline = await asyncio.to_thread(load)
            engine = open_engine(pipeline, settings)
            service.take(engine)
            named = [
                f"{role} {model.folder.path} on {model.config.device}"
                for role, model in (("main", pipeline.main), ("draft", pipeline.draft))
                if model is not None
            ]
            log.info("serving %s, drafter %s", ", ".join(named), pipeline.drafter)
            if isinstance(engine, LocalEngine):
                log.info("default options of requests: %s", engine.defaults)
            on_ready()
        except BaseException as error:
            failures.append(error)
            server.should_exit = True

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        loading = asyncio.create_task(load_models())
        yield
        await asyncio.gather(loading, return_exceptions=True)
        await asyncio.to_thread(service.close)

    config = uvicorn.Config(
        make_app(service, lifespan),
        **dict(binding),
        log_config=None,
        access_log=False,
        http=Connection,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=5,  # to send the last answers, after `shutdown_timeout`
    )
    _check_tls(config)
    server = Server(config, service)
    with _on_signals(lambda *_: None):  # uvicorn raises them again after its end
        server.run()
    if binding.uds is not None:  # uvicorn does not remove it
        Path(binding.uds).unlink(missing_ok=True)
    if failures:
        raise failures[0]


def _check_tls(config: uvicorn.Config) -> None:
    """Read the files for TLS; `OptionError` if they cannot be used."""
    if not config.is_ssl:
        return
    if config.ssl_certfile is None:
        raise OptionError(
            "{ssl_keyfile} has no effect without {ssl_certfile}: give both",
            ssl_keyfile=config.ssl_keyfile,
            ssl_certfile=...,
        )
    try:
        config.load()
    except OSError as error:  # ssl's are such too
        raise OptionError(
            f"{{ssl_certfile}} cannot be used ({error}): give a certificate and its key as PEM "
            "files",
            ssl_certfile=config.ssl_certfile,
        ) from error


def _leave(*_: object) -> None:
    """End the process."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")  # shows the cursor, which a spinner hides
        sys.stderr.flush()
    os._exit(0)


@contextmanager
def _on_signals(handle: Callable[..., None]) -> Iterator[None]:
    """Handle signals that would end the process. In the main thread only."""
    before = {sig: signal.signal(sig, handle) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
