"""One method in a process of its own: `python -m tests.benchmarks.peers.worker`.

Reads requests from stdin and answers each on stdout, one JSON object per line. The first,
`{"method": NAME, "setup": {...}}`, loads the models; each further one,
`{"prompt_ids": [...], "max_new_tokens": N}`, is a generation. An answer is `{"loaded": {...}}`,
`{"measurement": {...}, "memory": BYTES, "peak_memory": BYTES}`, or `{"error": "..."}`. Where the
first one is `{"engine": NAME, "setup": {...}}`, each further one, `{"load": {...}}`, is a load of
requests, and `{"served": [...]}` the answer. The end of stdin ends the process.
"""

import json
import os
import sys
from collections.abc import Iterable
from time import perf_counter
from typing import Any, TextIO

import psutil

from ov_specdec.errors import SpecdecError
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.load import Engine, Load, serve_load
from tests.benchmarks.peers.measurement import Runner
from tests.benchmarks.peers.methods import find_method
from tests.benchmarks.peers.setup import Setup

Answer = dict[str, Any]


def peak_memory() -> int | None:
    """Most memory that this process has held, in bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def serve(lines: Iterable[str], answers: TextIO) -> None:
    """Answer requests until there are no more."""
    worker = Worker()
    for line in lines:
        answer: Answer
        try:
            answer = worker.answer(json.loads(line))
        except SpecdecError as error:
            answer = {"error": str(error)}
        except Exception as error:  # a peer may raise anything, and the others are to go on
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Worker:
    """A method, for one request at a time or for many, once a request has loaded it."""

    def __init__(self) -> None:
        self._runner: Runner | None = None
        self._engine: Engine | None = None

    def answer(self, request: Answer) -> Answer:
        """See the module. Raises what the method does, and `BenchmarkError` before it is loaded."""
        if "method" in request or "engine" in request:
            return self._load(request)
        if self._engine is not None and "load" in request:
            served = serve_load(self._engine, Load(**request["load"]))
            return {"served": [each.as_dict() for each in served]}
        if self._runner is None:
            raise BenchmarkError("the first request must load a method")
        measurement = self._runner.run(request["prompt_ids"], request["max_new_tokens"])
        memory = psutil.Process().memory_info().rss
        return {
            "measurement": measurement.as_dict(),
            "memory": memory,
            "peak_memory": peak_memory(),
        }

    def _load(self, request: Answer) -> Answer:
        start = perf_counter()
        setup = Setup(**request["setup"])
        if "method" in request:
            self._runner = find_method(request["method"]).build(setup)
        else:
            self._engine = find_method(request["engine"]).serve(setup)
        return {"loaded": {"seconds": perf_counter() - start}}


def main() -> None:
    """Serve on the real stdout, and send whatever a library prints there to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
