"""Single requests: default, draft lengths and openvino.genai, interleaved in one process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, product
from time import perf_counter
from typing import Any, Literal
from zlib import crc32

from lab.benchmarks.figures.given import Given
from lab.benchmarks.measuring import Measurements, in_turns
from lab.benchmarks.peers.asks import Ask
from lab.benchmarks.peers.methods import find_method
from lab.benchmarks.peers.worker import Worker, WorkerProcess
from lab.benchmarks.record import Key, Row
from lab.benchmarks.texts import heldout_text, long_text
from ov_specdec import GenerationResult, SpeculativePipeline
from ov_specdec.text.tokenizer import load_tokenizer

WARM_UP = 24
"""Tokens of an untimed generation."""

LENGTHS: Mapping[str, Any] = {"plain": 0, "plain-again": 0, "default": "auto"}
"""Draft lengths of methods within one pipeline."""

LATER = 97
"""Tokens from the begin of a long prompt to that of the next one."""

ANSWER, QUESTION = 16, 20
"""Tokens of the answer in a first turn, and of the question in a second one."""


def requests(
    given: Given,
    pair: str,
    methods: Sequence[str],
    temperatures: Sequence[float],
    tokens: int,
    rounds: int,
    *,
    ends: bool = False,
    number: int | None = None,
    field: Literal["task", "form"] = "task",
) -> Measurements:
    """Prompts of a set, one after the other; each by all methods, at each temperature.

    tokens: of each output. ends: whether an end-of-sequence token ends it. number: of the first
    prompts; None takes all. field: that tells the task; tasks that are a "form" have tables apart.
    """
    prompts, turns = given.prompts(pair)[:number], count()
    with given.setup(pair) as setup, WorkerProcess(setup) as worker:
        measure = warmed(worker, methods, prompts[-1][1])
        for round_, number, heat in product(range(rounds), range(len(prompts)), temperatures):
            task, ids = prompts[number]
            turn, ask = next(turns), Ask(ids, tokens, heat, ends)
            about: Key = {"pair": pair, field: task, "prompt": number, "heat": heat}
            for method in in_turns(methods, turn):
                key: Key = {"turn": turn, "round": round_, **about, "method": method}
                yield key, partial(measure, method, ask)


def warmed(
    worker: WorkerProcess, methods: Sequence[str], ids: Sequence[int]
) -> Callable[[str, Ask], Row]:
    """`generate`, after an untimed generation where other models ran last: the next one is slower.

    ids: the prompt of that. Each method has one first.
    """
    last = ""

    def measure(method: str, ask: Ask) -> Row:
        nonlocal last
        loader = find_method(method).loader
        if loader != last:
            generate(worker, method, Ask(ids, WARM_UP))
        last = loader
        return generate(worker, method, ask)

    for method in methods:
        measure(method, Ask(ids, WARM_UP))
    return measure


def generate(worker: WorkerProcess, method: str, ask: Ask) -> Row:
    """One generation: tokens per second, and counts."""
    measured = worker.ask(Worker.run, method, ask)
    return compact(
        {
            "speed": measured.speed,
            "first": measured.first_token_seconds,
            "tokens": len(measured.token_ids),
            "passes": measured.main_passes,
            "drafted": measured.drafted,
            "accepted": measured.accepted,
            "text": None if ask.temperature else digest(measured.token_ids),
        }
    )


def digest(token_ids: Iterable[int]) -> str:
    """What tells a text from another one: those of the default are to be plain decoding's."""
    return f"{crc32(str([*token_ids]).encode()):08x}"


def compact(row: Mapping[str, Any]) -> Row:
    """A row with four digits a number, and nothing that was not told: the file is committed."""
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in row.items()
        if value is not None
    }


def long_prompts(
    given: Given, pair: str, methods: Sequence[str], cached: Sequence[int], tokens: int, rounds: int
) -> Measurements:
    """Questions after long source code, all of which each method reads, one after the other.

    cached: tokens of prompts, which are cached while the output is decoded.
    """
    text, turns = load_tokenizer(given.pairs[pair].main).encode(heldout_text()), count()
    questions = [ids for _, ids in given.prompts(pair)]
    with given.setup(pair) as setup, WorkerProcess(setup) as worker:
        measure = warmed(worker, methods, questions[-1])
        for round_, length in product(range(rounds), cached):
            turn, end = next(turns), questions[round_]
            ask = Ask([*text[LATER * round_ :][: length - len(end)], *end], tokens)
            about: Key = {"pair": pair, "cached": length, "prompt": round_}
            for method in in_turns(methods, turn):
                key: Key = {"turn": turn, **about, "method": method}
                yield key, partial(measure, method, ask)


def second_turns(given: Given, pairs: Sequence[str], rounds: int, first: int) -> Measurements:
    """The first token of a second turn, on the caches of the first turn and on empty ones.

    first: tokens of the first prompt.
    """
    for pair in given.known(pairs):
        with given.pairs[pair].pipeline() as pipeline:
            pipeline.prepare()
            text = pipeline.tokenizer.encode(long_text())
            second_turn(pipeline, text, first)
            for turn in range(1, rounds + 1):
                own = text[37 * turn :]
                key: Key = {"turn": turn, "prompt": turn, "pair": pair}
                yield key, partial(second_turn, pipeline, own, first)


def second_turn(pipeline: SpeculativePipeline, text: list[int], first: int) -> Row:
    """Seconds to the first token of one second turn, with the caches kept and without."""
    prompt = text[:first]
    answer = pipeline.generate(prompt, max_new_tokens=ANSWER, ignore_eos=True).token_ids
    second = [*prompt, *answer, *text[first : first + QUESTION]]
    kept = pipeline.generate(second, max_new_tokens=1).stats
    fresh = pipeline.generate(second, max_new_tokens=1, cache_prompt=False).stats
    return compact(
        {
            "kept": kept.time_to_first_token,
            "fresh": fresh.time_to_first_token,
            "cached": kept.cached_tokens,
        }
    )


def again(given: Given, pairs: Sequence[str], number: int, tokens: int) -> Measurements:
    """Prompts that were answered before, by a main model alone: its suffix drafts know the answer.

    number: of the first prompts of a pair's set.
    """
    for pair in given.known(pairs):
        prompts = given.prompts(pair)[:number]
        with replace(given.pairs[pair], draft=None).pipeline() as pipeline:
            pipeline.prepare()
            for turn, (task, ids) in enumerate(prompts):
                ask = partial(pipeline.generate, ids, max_new_tokens=tokens)
                ask()  # the answer that suffix drafts know later
                for method in in_turns(tuple(LENGTHS), turn):
                    key: Key = {"turn": turn, "pair": pair, "task": task, "prompt": turn}
                    answer = partial(ask, num_assistant_tokens=LENGTHS[method])
                    yield {**key, "method": method}, partial(timed, answer)


def timed(answer: Callable[[], GenerationResult]) -> Row:
    """One answer: tokens per second from the call to its end, and counts."""
    start = perf_counter()
    result = answer()
    speed = len(result.token_ids) / (perf_counter() - start)
    stats, text = result.stats, digest(result.token_ids)
    row = {"speed": speed, "tokens": stats.generated_tokens, "passes": stats.main_passes}
    return compact({**row, "accepted": stats.accepted, "forced": stats.forced, "text": text})
