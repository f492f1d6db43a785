"""What wants fresh processes: without options, and for memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, cycle, product
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from lab.benchmarks import priority
from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.requests import compact, generate
from lab.benchmarks.figures.results import best
from lab.benchmarks.measuring import Measurements, in_turns
from lab.benchmarks.peers.asks import Ask, BenchmarkError, Setup
from lab.benchmarks.peers.worker import Worker, WorkerProcess
from lab.benchmarks.record import Key, Row, select

SETTLED = 10.0
"""Seconds of decoding after which a process holds what it will hold."""

MIB = 2**20


def fresh(given: Given, pairs: Mapping[str, str], tokens: int, rounds: int) -> Measurements:
    """The first generation of a process without options, and one after ten seconds of others.

    pairs: by name, the part that has measured openvino.genai's settings, of which the best runs.
    """
    turns, known = count(), given.known(pairs)
    peers = {pair: ("genai-plain", fastest_peer(given, pairs[pair])) for pair in known}
    for round_, pair in product(range(rounds), known):
        prompts = [ids for _, ids in given.prompts(pair)]
        ordered, turn = [*prompts[round_:], *prompts[:round_]], next(turns)
        with given.setup(pair, is_prepared=False) as setup:
            for method in in_turns(("default", *dict.fromkeys(peers[pair])), round_):
                key: Key = {"turn": turn, "prompt": round_, "pair": pair, "method": method}
                yield key, partial(fresh_process, given, setup, method, ordered, tokens)


def fastest_peer(given: Given, part: str) -> str:
    """openvino.genai's best setting on the greedy prompts of a part, plain included."""
    rows = select(given.rows, part=part, heat=0.0)
    name = best(rows, "genai")
    if name is None:
        raise BenchmarkError(f"openvino.genai's best setting is unknown: measure {part} first")
    return name


def fresh_process(
    given: Given, setup: Setup, method: str, prompts: Sequence[list[int]], tokens: int
) -> Row:
    """A process that finds nothing in its cache folder; times include the first token.

    It decodes at the usual priority for ten seconds: at real time, what is compiled beside would
    starve. Both generations continue the first prompt.
    """
    asks = [Ask(ids, tokens) for ids in prompts]
    with TemporaryDirectory() as cache, WorkerProcess(setup, {"XDG_CACHE_HOME": cache}) as worker:
        worker.ask(Worker.load, method)
        first = generate(worker, method, asks[0])
        worker.ask(Worker.change_priority, priority.USUAL)
        start = monotonic()
        for ask in cycle(asks[1:]):
            if monotonic() - start > SETTLED:
                break
            generate(worker, method, ask)
        worker.ask(Worker.change_priority, given.priority)
        later = generate(worker, method, asks[0])
    return compact(
        {
            "speed": first["speed"],
            "first": first["first"],
            "later speed": later["speed"],
            "later first": later["first"],
        }
    )


def memory(
    given: Given, pairs: Mapping[str, str], cases: Sequence[tuple[str, Any]], tokens: int
) -> Measurements:
    """What a process holds once it has settled.

    pairs: see `fresh`. cases: methods and their static shapes; openvino.genai's best has none.
    """
    for pair in given.known(pairs):
        prompts = [ids for _, ids in given.prompts(pair)]
        with given.setup(pair) as setup:
            for method, shapes in (*cases, (fastest_peer(given, pairs[pair]), None)):
                own = replace(setup, static_shapes=shapes or "auto")
                key: Key = {"pair": pair, "method": method, "shapes": str(shapes)}
                yield key, partial(held, own, method, prompts, tokens)


def held(setup: Setup, method: str, prompts: Sequence[list[int]], tokens: int) -> Row:
    """MiB of a process after some seconds of decoding, by whose they are, and its speed then."""
    with WorkerProcess(setup) as worker:
        worker.ask(Worker.load, method)
        start, speeds = monotonic(), list[float]()
        for ids in cycle(prompts):
            if monotonic() - start > SETTLED and len(speeds) >= 2:
                break
            speeds.append(generate(worker, method, Ask(ids, tokens))["speed"])
        settled = worker.ask(Worker.memory)
    return compact(
        {
            "speed": median(speeds[len(speeds) // 2 :]),
            "own": settled["own"] / MIB,
            "mapped": settled["mapped"] / MIB,
        }
    )
