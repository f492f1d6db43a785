"""The other end of a worker: starts its process, asks it, and survives its death."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from queue import Empty, Queue
from types import MappingProxyType
from typing import IO, Any, cast

from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.setup import Setup

WORKER_COMMAND = (sys.executable, "-m", "tests.benchmarks.peers.worker")
CLOSING_SECONDS = 10.0


def load_request(method: str, setup: Setup) -> dict[str, Any]:
    """The request that loads a method."""
    return {"setup": asdict(setup), "method": method}


def engine_request(method: str, setup: Setup) -> dict[str, Any]:
    """The request that loads a method for many requests at once."""
    return {"setup": asdict(setup), "engine": method}


class WorkerProcess:
    """A process that answers JSON lines with JSON lines. Use it as a context.

    variables: of its environment, over those of this process.
    """

    def __init__(
        self,
        command: Sequence[str] = WORKER_COMMAND,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        # A file, not a pipe: nobody reads it while the worker runs, and a full pipe would block.
        self._errors: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 (closed with the process)
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            env={**os.environ, **variables},
        )
        self._stdin = cast("IO[str]", self._process.stdin)
        self._stdout = cast("IO[str]", self._process.stdout)
        self._answers: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises `BenchmarkError` where the worker says what went wrong, has died, or does not answer
        within `timeout` seconds; it is of no use after the latter two.
        """
        try:
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()
        except OSError:
            raise BenchmarkError(self._describe_exit()) from None
        try:
            line = self._answers.get(timeout=timeout)
        except Empty:
            self._process.kill()
            raise BenchmarkError(f"no answer within {timeout:.0f} s: it was stopped") from None
        if not line:
            raise BenchmarkError(self._describe_exit())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process: by the end of its stdin, or by force."""
        try:
            self._stdin.close()
            self._process.wait(CLOSING_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self) -> None:
        """Pass on lines as they come, and an empty one at the end."""
        for line in self._stdout:
            self._answers.put(line)
        self._answers.put("")

    def _describe_exit(self) -> str:
        """How the process ended: its exit status, and the last line on its stderr."""
        status = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        last = f": {lines[-1]}" if lines else ""
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"its process died with {how}{last}"
