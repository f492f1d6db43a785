"""Runs methods in turns, each in its own process, and collects what they measure."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from ov_specdec.bench.measurement import Measurement
from ov_specdec.errors import BenchmarkError


class Worker(Protocol):
    """Answers requests, as `ov_specdec.bench.worker` describes them."""

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
    the end; the runs it had finished until then count.
    """

    runs: list[Run] = field(default_factory=list)
    load_seconds: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[str, int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def run_methods(
    start: Callable[[], Worker],
    loads: dict[str, dict[str, Any]],
    schedule: Schedule,
    step: Callable[[str], None],
) -> Outcome:
    """Load every method in a worker of its own, warm it up, then run all of them in turns.

    start: makes a worker. loads: by method, the request that loads it. step: is told what happens
    next: once per load and once per generation of each method that loads.
    Only one worker is at work at a time. Methods take turns prompt by prompt, so that whatever
    slows the machine down for a while slows all of them.
    """
    outcome = Outcome()
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name, request in loads.items():
            step(f"loading {name}")
            worker = start()
            stack.callback(worker.close)
            try:
                answer = worker.ask(request, schedule.timeout)
                _generate(worker, schedule, 0)
            except BenchmarkError as error:
                outcome.failures[name] = str(error)
                continue
            workers[name] = worker
            outcome.load_seconds[name] = answer["loaded"]["seconds"]
        for round_ in range(schedule.rounds):
            for prompt in range(len(schedule.prompts)):
                for name in list(workers):
                    step(f"round {round_ + 1}, prompt {prompt + 1}: {name}")
                    try:
                        measurement, memory = _generate(workers[name], schedule, prompt)
                    except BenchmarkError as error:
                        outcome.failures[name] = str(error)
                        del workers[name]
                        continue
                    outcome.runs.append(Run(name, round_, prompt, measurement))
                    if memory is not None:
                        outcome.peak_memory[name] = memory
    return outcome


def _generate(worker: Worker, schedule: Schedule, prompt: int) -> tuple[Measurement, int | None]:
    request = {
        "prompt_ids": list(schedule.prompts[prompt]),
        "max_new_tokens": schedule.max_new_tokens,
    }
    answer = worker.ask(request, schedule.timeout)
    return Measurement.from_dict(answer["measurement"]), answer["peak_memory"]
