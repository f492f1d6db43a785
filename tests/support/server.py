"""The server on a real socket, in a thread of the test's process or as a process."""

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from socket import socket
from typing import Any, TypeVar

import httpx
import openai
import pytest
import uvicorn

from ov_specdec import SpeculativePipeline
from ov_specdec.api.dialect import Dialect
from ov_specdec.dialects import DIALECTS
from ov_specdec.server import run as connection
from ov_specdec.server.app import make_app
from ov_specdec.server.run import Connection, Server, open_engine
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings

NAME = "org/tiny"
Client = TypeVar("Client", openai.OpenAI, openai.AsyncOpenAI)


class Running:
    """A server that runs. service: its own, to look at and to break."""

    def __init__(self, service: Service, url: str, server: Server) -> None:
        self.service = service
        self.url = url
        self.stop = partial(setattr, server, "should_exit", True)
        self.tasks = server.server_state.tasks
        self.http = httpx.Client(base_url=url, timeout=60)

    def post(self, path: str, key: str | None = None, **body: Any) -> httpx.Response:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return self.http.post(path, json=body, headers=headers)

    def complete(self, prompt: Any, **fields: Any) -> Any:
        """The text of a greedy completion, or fields of the answer."""
        answer = self.post("/v1/completions", prompt=prompt, **{"temperature": 0, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait(self) -> None:
        """Until it is done with all requests: it counts one after its answer."""
        wait_until(lambda: not self.tasks)

    def metric(self, name: str) -> float | None:
        """The value of a metric without labels of its own."""
        served: Any = self.service.engine
        found = (
            metrics.registry.get_sample_value(f"ov_specdec:{name}", {"model_name": NAME})
            for metrics in (served.metrics, self.service.metrics)
        )
        return next((value for value in found if value is not None), None)


@contextmanager
def serving(
    pipeline: SpeculativePipeline | None = None,
    dialects: Sequence[Dialect] = DIALECTS,
    **settings: Any,
) -> Iterator[Running]:
    """Serve a pipeline, or none yet; it is not closed at the end."""
    service = Service(Settings(**{"served_model_name": NAME, **settings}))
    if pipeline is not None:
        service.take(open_engine(pipeline, service.settings))
    app = make_app(service, dialects=dialects)
    config = uvicorn.Config(
        app,
        port=0,
        http=Connection,
        log_config=None,
        access_log=False,
        timeout_keep_alive=connection.KEEP_ALIVE,
    )
    started = threading.Event()

    class Started(Server):
        async def startup(self, sockets: list[socket] | None = None) -> None:
            await super().startup(sockets)
            started.set()

    server = Started(config, service)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        assert started.wait(30)
        port = server.servers[0].sockets[0].getsockname()[1]
        running = Running(service, f"http://127.0.0.1:{port}", server)
        yield running
        running.http.close()
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def serving_process(
    *arguments: object, **connection: Any
) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Start `ov-specdec serve` on a free port; gives the process and a client, once it is ready.

    connection: arguments of the client.
    """
    command = [sys.executable, "-m", "ov_specdec", "serve", "--port", "0", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            with httpx.Client(**{"base_url": url, "timeout": 60, **connection}) as client:
                yield process, client
        finally:
            process.kill()


def official_client(server: Running, kind: type[Client]) -> Client:
    """OpenAI's own client, which refuses what is not as it declares it."""
    return kind(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    )


@contextmanager
def paused(
    pipeline: SpeculativePipeline, monkeypatch: pytest.MonkeyPatch, after: int = 0
) -> Iterator[threading.Event]:
    """Passes of the main model wait until what this yields is set. after: so many do not."""
    runner, goes_on = pipeline.main.runner, threading.Event()
    run, numbers = type(runner).forward, itertools.count()

    def waiting(self: Any, spans: Any) -> Any:
        if self is runner and next(numbers) >= after:
            goes_on.wait(30)
        return run(self, spans)

    monkeypatch.setattr(type(runner), "forward", waiting)
    try:
        yield goes_on
    finally:
        goes_on.set()


def has_client_left(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the server has logged that a client left before its answer was whole."""
    entries = (record.record for record in caplog.records if hasattr(record, "record"))
    return any(entry.status == 499 for entry in entries)


def scope_of_completion(**more: Any) -> MutableMapping[str, Any]:
    """What an ASGI application is told of a request to /v1/completions, without a socket."""
    return {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        **more,
    }


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Return once it is true; what a server does after its answer is not seen at once."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.005)
