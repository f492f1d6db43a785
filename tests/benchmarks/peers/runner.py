"""Runs methods in turns, each in its own process, and collects what they measure."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.measurement import Measurement


class Worker(Protocol):
    """Answers requests, as `tests.benchmarks.peers.worker` describes them."""

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """The answer; `BenchmarkError` where there is none."""
        ...

    def close(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How often to run which prompts.

    prompts: token ids of each. rounds: how often each method continues each prompt, after the
    warm-up. timeout: seconds that one load or one generation may take.
    """

    prompts: Sequence[Sequence[int]]
    rounds: int
    max_new_tokens: int
    timeout: float


@dataclass(frozen=True)
class Run:
    """One measured generation, with its place in the schedule."""

    method: str
    round: int
    prompt: int
    measurement: Measurement


@dataclass
class Outcome:
    """All that came of a benchmark.

    load_seconds and peak_memory (bytes): by method. failures: why a method did not run, or not to
    the end; the runs it had finished until then count. is_interrupted: it was ended by Ctrl-C.
    frameworks: whose the methods are.
    """

    runs: list[Run] = field(default_factory=list)
    load_seconds: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[str, int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    is_interrupted: bool = False
    frameworks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A request to every method in turn, and what to call it while it runs."""

    title: str
    request: dict[str, Any]


@dataclass
class Answers:
    """What the workers answered.

    answers: method, number of the task, answer, in their order. is_interrupted: there would have
    been more, but for Ctrl-C.
    """

    answers: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    load_seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    is_interrupted: bool = False


def take_turns(
    start: Callable[[], Worker],
    loads: dict[str, dict[str, Any]],
    warm_up: dict[str, Any] | None,
    tasks: Sequence[Task],
    timeout: float,
    step: Callable[[str], None],
) -> Answers:
    """Load every method in a worker of its own, then give all of them tasks in turns.

    start: makes a worker. loads: by method, the request that loads it. warm_up: a request that
    follows at once. timeout: seconds for one request. step: is told what happens next: once per
    load and once per task of each method that loads.
    Only one worker is at work at a time. Methods take turns task by task, so that whatever slows
    the machine down for a while slows all of them. Ctrl-C ends the tasks; what was answered until
    then is returned.
    """
    found = Answers()
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name, request in loads.items():
            step(f"loading {name}")
            worker = start()
            stack.callback(worker.close)
            try:
                answer = worker.ask(request, timeout)
                if warm_up is not None:
                    worker.ask(warm_up, timeout)
            except BenchmarkError as error:
                found.failures[name] = str(error)
                continue
            workers[name] = worker
            found.load_seconds[name] = answer["loaded"]["seconds"]
        try:
            _give(tasks, workers, timeout, step, found)
        except KeyboardInterrupt:
            found.is_interrupted = True
    return found


def _give(
    tasks: Sequence[Task],
    workers: dict[str, Worker],
    timeout: float,
    step: Callable[[str], None],
    found: Answers,
) -> None:
    """Give all workers the tasks in turns; those that fail get no more of them."""
    for number, task in enumerate(tasks):
        for name in list(workers):
            step(f"{task.title}: {name}")
            try:
                answer = workers[name].ask(task.request, timeout)
            except BenchmarkError as error:
                found.failures[name] = str(error)
                del workers[name]
                continue
            found.answers.append((name, number, answer))


def run_methods(
    start: Callable[[], Worker],
    loads: dict[str, dict[str, Any]],
    schedule: Schedule,
    step: Callable[[str], None],
) -> Outcome:
    """Run methods in turns, prompt by prompt and round by round. See `take_turns`."""
    places = [(r, p) for r in range(schedule.rounds) for p in range(len(schedule.prompts))]
    tasks = [
        Task(f"round {round_ + 1}, prompt {prompt + 1}", _generation(schedule, prompt))
        for round_, prompt in places
    ]
    found = take_turns(start, loads, _generation(schedule, 0), tasks, schedule.timeout, step)
    outcome = Outcome(
        load_seconds=found.load_seconds,
        failures=found.failures,
        is_interrupted=found.is_interrupted,
    )
    for name, number, answer in found.answers:
        measurement = Measurement.from_dict(answer["measurement"])
        outcome.runs.append(Run(name, *places[number], measurement))
        if answer["peak_memory"] is not None:
            outcome.peak_memory[name] = answer["peak_memory"]
    return outcome


def _generation(schedule: Schedule, prompt: int) -> dict[str, Any]:
    """The request of one generation."""
    return {
        "prompt_ids": list(schedule.prompts[prompt]),
        "max_new_tokens": schedule.max_new_tokens,
    }
