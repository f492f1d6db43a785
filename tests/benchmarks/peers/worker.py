"""Methods in a process of their own: `python -m tests.benchmarks.peers.worker`.

Reads requests from stdin and answers each on stdout, one JSON object per line. The first,
`{"setup": {...}, "method": NAME}` or `{"setup": {...}, "engine": NAME}`, loads the models of a
method, and `{"seconds": S}` is the answer. Each further one is one of these:

- `{"method": NAME, "ask": {...}}`: a generation; `{"measurement": {...}}`;
- `{"load": [{...}]}`: requests that come together; `{"served": [...]}`;
- `{"memory": true}`: `{"own": BYTES, "mapped": BYTES}`;
- `{"priority": "usual"}` or `"real time"`: `{}`.

`{"error": "..."}` may be the answer to any. The end of stdin ends the process.
"""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

from ov_specdec.errors import SpecdecError
from tests.benchmarks import priority
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.load import Engine, Request, serve_load
from tests.benchmarks.peers.measurement import Ask
from tests.benchmarks.peers.methods import Methods, load_engine
from tests.benchmarks.peers.setup import Setup

Answer = dict[str, Any]


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
    """Methods, for one request at a time or for many, once a request has loaded them."""

    def __init__(self) -> None:
        self._methods: Methods | None = None
        self._engine: Engine | None = None

    def answer(self, request: Answer) -> Answer:
        """See the module. Raises what the method does, and `BenchmarkError` before it is loaded."""
        if "setup" in request:
            return self._load(request)
        if "memory" in request:
            return memory(Path("/proc/self/smaps_rollup").read_text())
        if "priority" in request:
            priority.change_all(request["priority"])
            return {}
        if "load" in request and self._engine is not None:
            served = serve_load(self._engine, [Request(**each) for each in request["load"]])
            return {"served": [asdict(each) for each in served]}
        if self._methods is None:
            raise BenchmarkError("the first request must load a method")
        measured = self._methods.run(request["method"], Ask(**request["ask"]))
        return {"measurement": asdict(measured)}

    def _load(self, request: Answer) -> Answer:
        start = perf_counter()
        setup = Setup(**request["setup"])
        if "engine" in request:
            self._engine = load_engine(request["engine"], setup)
        else:
            self._methods = Methods(setup)
            self._methods.load(request["method"])
        return {"seconds": perf_counter() - start}


def memory(rollup: str) -> Answer:
    """Bytes of a process by Linux's account: its own, and clean pages of files that it maps.

    The system takes the latter back where it needs them: they are read from the file again.
    """
    lines = (line.split() for line in rollup.splitlines()[1:])
    sizes = {name.rstrip(":"): 1024 * int(size) for name, size, *_ in lines}
    mapped = sizes["Shared_Clean"] + sizes["Private_Clean"]
    return {"own": sizes["Rss"] - mapped, "mapped": mapped}


def main() -> None:
    """Serve on the real stdout, and send whatever a library prints there to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
