"""What wants a process for each method: many requests at once, memory, other frameworks."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from ov_specdec.text.tokenizer import load_tokenizer
from tests.benchmarks.figures.given import Given
from tests.benchmarks.figures.in_process import as_row, compact
from tests.benchmarks.measuring import Measurements, in_turns
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.load import Load
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.process import WorkerProcess, engine_request, load_request
from tests.benchmarks.peers.setup import Setup
from tests.benchmarks.record import Key, Row
from tests.benchmarks.texts import Prompts

TIMEOUT = 300.0
"""Seconds of a load or a generation, after which a method is given up."""

SETTLED = 10.0
"""Seconds of decoding after which a process holds what it will hold."""

MIB = 2**20


@contextmanager
def loaded(requests: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, WorkerProcess]]:
    """A process for each method, with its models loaded."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(WorkerProcess()) for name in requests}
        for name, request in requests.items():
            workers[name].ask(request, TIMEOUT)
        yield workers


def many(
    given: Given,
    pair: str,
    methods: Sequence[str],
    sizes: Sequence[int],
    prompt_set: str,
    tokens: int,
    rounds: int,
) -> Measurements:
    """Loads of several requests that come together: tokens per second of all of them."""
    prompts = encoded(given, pair, prompt_set)
    with given.setup(pair) as setup:
        setup = replace(setup, max_batch_size=max(sizes))
        requests = {name: engine_request(name, setup) for name in methods}
        with loaded(requests) as workers:
            for size in sizes:
                for name in methods:
                    serve(workers[name], prompts[:size] * (size // len(prompts[:size])), tokens)
            for turn in range(rounds * len(sizes)):
                size = sizes[turn % len(sizes)]
                start = turn // len(sizes) * size
                chosen = [prompts[(start + i) % len(prompts)] for i in range(size)]
                for name in in_turns(methods, turn):
                    key: Key = {"turn": turn, "requests": size, "method": name}
                    yield key, partial(serve, workers[name], chosen, tokens)


def serve(worker: WorkerProcess, prompts: Sequence[list[int]], tokens: int) -> Row:
    """One load: tokens per second until the last request has ended."""
    load = Load(prompts, tokens)
    served = worker.ask({"load": asdict(load)}, TIMEOUT)["served"]
    seconds = max(each["steps"][-1][0] for each in served)
    return compact({"speed": sum(len(each["token_ids"]) for each in served) / seconds})


def memory(given: Given, cases: Mapping[str, Sequence[tuple[str, Any]]]) -> Measurements:
    """What a process holds once it has settled, and how fast it is then.

    cases: by pair, methods and their static shapes; those of other frameworks have none.
    """
    for pair in given.pairs:
        prompts = encoded(given, pair, "tasks" if pair == "chat" else "code")
        with given.setup(pair) as setup:
            for name, shapes in cases[pair]:
                own = replace(setup, static_shapes=shapes or "auto")
                key: Key = {"pair": pair, "method": name, "shapes": str(shapes)}
                yield key, partial(settled, load_request(name, own), prompts)


def settled(request: dict[str, Any], prompts: Sequence[list[int]]) -> Row:
    """Memory in MiB after some seconds of decoding, and the latest speeds."""
    with WorkerProcess() as worker:
        worker.ask(request, TIMEOUT)
        start, speeds = monotonic(), list[float]()
        while monotonic() - start < SETTLED or len(speeds) < len(prompts) / 2:
            prompt = prompts[len(speeds) % len(prompts)]
            answer = worker.ask({"prompt_ids": prompt, "max_new_tokens": 64}, TIMEOUT)
            speeds.append(Measurement(**answer["measurement"]).speed or 0.0)
    latest = speeds[len(speeds) // 2 :]
    return compact({"speed": median(latest), "n": len(latest), "memory": answer["memory"] / MIB})


def frameworks(
    given: Given, pair: str, methods: Sequence[str], prompt_set: str, tokens: int, rounds: int
) -> Measurements:
    """Single requests, each framework in a process of its own, whose threads leave others alone."""
    prompts = encoded(given, pair, prompt_set)
    with ExitStack() as stack:
        setup = stack.enter_context(given.setup(pair))
        requests = {name: load_request(name, setup) for name in methods}
        workers = stack.enter_context(loaded(requests))
        for name in methods:
            generate(workers[name], prompts[0], 8)
        for turn in range(rounds * len(prompts)):
            for name in in_turns(methods, turn):
                key: Key = {"turn": turn, "method": name}
                prompt = prompts[turn % len(prompts)]
                yield key, partial(generate, workers[name], prompt, tokens)


def generate(worker: WorkerProcess, prompt: list[int], tokens: int) -> Row:
    """One generation."""
    answer = worker.ask({"prompt_ids": prompt, "max_new_tokens": tokens}, TIMEOUT)
    return as_row(Measurement(**answer["measurement"]))


def first_processes(given: Given, pair: str, runs: int, tokens: int, rounds: int) -> Measurements:
    """A process that finds no cost curve, and one after it: their first generations."""
    with given.setup(pair) as setup:
        for turn in range(rounds):
            with TemporaryDirectory() as cache:
                for which in ("first", "second"):
                    key: Key = {"turn": turn, "method": which}
                    yield key, partial(fresh_process, setup, cache, runs, tokens)


def fresh_process(setup: Setup, cache: str, runs: int, tokens: int) -> Row:
    """What a new process with this cache folder says of its first generations."""
    command = [sys.executable, "-m", "tests.benchmarks.figures.fresh"]
    command += [setup.main, setup.draft, str(runs), str(tokens), json.dumps(dict(setup.properties))]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise BenchmarkError(f"a new process failed: {done.stderr.strip().splitlines()[-1]}")
    return compact(json.loads(done.stdout))


def encoded(given: Given, pair: str, prompt_set: str) -> list[list[int]]:
    """Token ids of a set's prompts, for the main model of a pair."""
    tokenizer = load_tokenizer(given.pairs[pair].main)
    return [ids for _, ids in Prompts.read(prompt_set).ids(tokenizer)]
