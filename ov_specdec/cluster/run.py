"""Runs the application from the command line: in a Ray of its own, or in one that is running."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import ray
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.schema import LoggingConfig

from ov_specdec.cluster.application import ClusterArgs, build
from ov_specdec.cluster.cpus import read_places
from ov_specdec.errors import DeviceError

NAME = "ov-specdec"

OBJECT_STORE = 100_000_000
"""Bytes of shared memory. Little goes through it: chunks of text are sent inline."""


def serve_replicas(
    args: ClusterArgs, host: str, port: int, address: str | None, on_ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or Ctrl-C; running requests then get `shutdown_timeout` to end.

    address: of a Ray cluster that is running, where only the application is ended; None: Ray is
    started for it, on this machine, and ended too. on_ready: called when requests are taken. Raises
    `DeviceError` where no replica comes up.
    """
    options = HTTPOptions(host=host.removeprefix("[").removesuffix("]"), port=port)
    logging = LoggingConfig(log_level="WARNING", enable_access_log=False)
    with redirect_stdout(sys.stderr), _ray(address):  # Ray prints what its workers print
        serve.start(http_options=options, logging_config=logging)
        try:
            serve.run(build(args), name=NAME, logging_config=logging)
            on_ready()
            _wait_for_signal()
        except RuntimeError as error:
            reason = serve.status().applications[NAME].message
            raise DeviceError(f"no replica could be started: {reason}") from error
        finally:
            serve.delete(NAME)


@contextmanager
def _ray(address: str | None) -> Iterator[None]:
    """A connection to a cluster, or one that is made for it."""
    own: dict[str, Any] = {}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is to call out
        own = {
            "num_cpus": len(read_places()),
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE,
        }
    ray.init(address=address, **own)
    try:
        yield
    finally:
        if address is None:
            serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()


def _wait_for_signal() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
