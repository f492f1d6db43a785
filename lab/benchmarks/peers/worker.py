"""Methods in a process of their own, which may die."""

import os
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar

from lab.benchmarks import priority
from lab.benchmarks.peers.asks import (
    Ask,
    BenchmarkError,
    Engine,
    Measurement,
    Runner,
    Served,
    Setup,
    serve_load,
)
from lab.benchmarks.peers.methods import find_method, load
from ov_specdec.errors import SpecdecError

TIMEOUT = 1200.0
"""Seconds to load models or to answer, after which a process is given up."""

CLOSING_SECONDS = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Methods of one setup; each loader loads once. All raise `BenchmarkError`, or what they do."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runners: dict[str, Runner] = {}
        self._engine: Engine | None = None

    def load(self, name: str) -> None:
        """Load the models of a method, for one request at a time."""
        loader = find_method(name).loader
        if loader not in self._runners:
            self._runners[loader] = load(loader, self._setup)

    def run(self, name: str, ask: Ask) -> Measurement:
        """One generation."""
        self.load(name)
        return self._runners[find_method(name).loader].run(ask, find_method(name).length)

    def serve(self, name: str, asks: list[Ask]) -> list[Served]:
        """Greedy requests that come together, by the engine of the first method's loader."""
        method = find_method(name)
        self._engine = self._engine or load(method.loader, self._setup, "load_engine")
        return serve_load(self._engine, asks, method.length)

    def memory(self) -> dict[str, int]:
        """Bytes of this process by Linux's account: its own, and clean pages of mapped files.

        The system takes the latter back where it needs them: they are read from the file again.
        """
        rollup = Path("/proc/self/smaps_rollup").read_text()
        lines = (line.split() for line in rollup.splitlines()[1:])
        sizes = {name.rstrip(":"): 1024 * int(size) for name, size, *_ in lines}
        mapped = sizes["Shared_Clean"] + sizes["Private_Clean"]
        return {"own": sizes["Rss"] - mapped, "mapped": mapped}

    def change_priority(self, name: str) -> None:
        """Give all threads a priority."""
        priority.change_all(name)


class WorkerProcess:
    """A process with a `Worker`, which is asked by the functions of that. Use it as a context.

    variables: of its environment, over those of this process.
    """

    def __init__(self, setup: Setup, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        context = get_context("spawn")
        self._pipe, other = context.Pipe()
        arguments = (other, setup, dict(variables))
        self._process = context.Process(target=_answer, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def ask(
        self, function: Callable[Concatenate[Worker, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What a function of the worker gives.

        Raises `BenchmarkError` where that says what went wrong, or the process has died or does
        not answer in time; it is of no use after the latter two.
        """
        try:
            self._pipe.send((function, args, kwargs))
            if not self._pipe.poll(TIMEOUT):
                self._process.kill()
                raise BenchmarkError(f"no answer within {TIMEOUT:.0f} s: it was stopped")
            error, answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode
            raise BenchmarkError(f"its process died with exit status {status}") from None
        if error:
            raise BenchmarkError(error)
        return answer  # type: ignore[no-any-return]  # of what has passed a pipe

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self._pipe.close()  # which ends it
        self._process.join(CLOSING_SECONDS)
        self._process.kill()
        self._process.join()


def _answer(pipe: Connection, setup: Setup, variables: Mapping[str, str]) -> None:
    """Answer until nobody asks. What a library prints goes to stderr."""
    os.environ.update(variables)
    os.dup2(2, 1)
    worker = Worker(setup)
    while True:
        answer, error = None, ""
        try:
            function, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            answer = function(worker, *args, **kwargs)
        except SpecdecError as raised:
            error = str(raised)
        except Exception as raised:  # a peer may raise anything, and the others are to go on
            error = f"{type(raised).__name__}: {raised}"
        pipe.send((error, answer))
