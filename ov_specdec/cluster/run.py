"""Runs the application from the command line, in a new Ray cluster or in a running one."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout, suppress
from typing import Any

import psutil
import ray
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.schema import ApplicationStatusOverview, LoggingConfig

from ov_specdec.cluster.application import ClusterArgs, build
from ov_specdec.cluster.cpus import read_cores
from ov_specdec.errors import DeviceError

NAME = "ov-specdec"

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end the server."""

OBJECT_STORE = 100_000_000
"""Bytes of shared memory: little, because chunks of text are sent inline."""

LOGGING = LoggingConfig(log_level="WARNING", enable_access_log=False)
"""Log level of Ray Serve itself: requests are in the server's own log."""


def serve_replicas(
    args: ClusterArgs, host: str, port: int, address: str | None, on_ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or Ctrl-C; running requests then get `shutdown_timeout` to end.

    While replicas load, a signal ends a Ray that was started here at once. address: see
    `connected`. on_ready: called when the server accepts requests. Raises `DeviceError` if the
    replicas cannot be started.
    """
    with ExitStack() as connection, redirect_stdout(sys.stderr):  # Ray prints what its workers do
        with nullcontext() if address else _signals_end_all():
            connection.enter_context(connected(address))
            connection.callback(serve.delete, NAME)
            deploy(args, host, port)
        on_ready()
        _wait_for_signal()


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to the Ray cluster at an address; None starts one, and ends it."""
    own: dict[str, Any] = {}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no network calls
        own = {
            "num_cpus": len(read_cores()),
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE,
        }
    # Without an address Ray would join a cluster that it finds.
    ray.init(address=address or "local", **own)
    try:
        yield
    finally:
        if address is None:
            serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()


def deploy(args: ClusterArgs, host: str, port: int) -> None:
    """Start the application, or replace a running one; returns when it accepts requests."""
    options = HTTPOptions(host=host, port=port)
    serve.start(http_options=options, logging_config=LOGGING)
    try:
        serve.run(build(args), name=NAME, logging_config=LOGGING)
    except RuntimeError as error:
        reason = reason_of(serve.status().applications[NAME])
        raise DeviceError(f"the replicas could not be started: {reason}") from error


def reason_of(application: ApplicationStatusOverview) -> str:
    """Why it failed: the last line of Ray's message, whose tracebacks end with the error."""
    messages = [each.message for each in application.deployments.values()]
    lines = [line for text in (application.message, *messages) for line in text.splitlines()]
    return lines[-1] if lines else "see Ray's log"


@contextmanager
def _signals_end_all() -> Iterator[None]:
    """Let signals end this process and its children at once, with exit code 0.

    A thread does so, because Ray installs signal handlers of its own, which take seconds.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def end() -> None:
        while number := receiver.recv(1):
            if number[0] in SIGNALS:
                for child in psutil.Process().children(recursive=True):
                    with suppress(psutil.NoSuchProcess):  # Ray may end it first
                        child.kill()
                os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    for number in SIGNALS:  # a signal without a handler wakes no thread
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        sender.close()  # the thread ends


def _wait_for_signal() -> None:
    ended = threading.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
