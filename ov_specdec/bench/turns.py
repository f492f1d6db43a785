"""Interleaved measurements: each load with every method, then the next load, round by round."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ov_specdec.bench.requests_at_once import Answer

Way = Callable[[Sequence[str]], Sequence[Answer]]
"""Answers a load with one method, whose models are loaded."""


@dataclass(frozen=True)
class Schedule:
    """The plan of a benchmark. concurrency: numbers of concurrent requests, measured in order.

    rounds: how often each method answers each load.
    """

    prompts: Sequence[str]
    concurrency: Sequence[int]
    rounds: int

    def loads(self, size: int) -> list[list[str]]:
        """The loads of one round: as many of this size as the prompts fill, at least one."""
        num_prompts = len(self.prompts)
        return [
            [self.prompts[i % num_prompts] for i in range(first, first + size)]
            for first in range(0, max(num_prompts - size, 0) + 1, size)
        ]

    @property
    def num_turns(self) -> int:
        """Runs of each method, warm-up included."""
        return sum(1 + self.rounds * len(self.loads(size)) for size in self.concurrency)


@dataclass(frozen=True)
class Run:
    """One load answered by one method. concurrency: requests in the load. load: its index."""

    method: str
    concurrency: int
    round: int
    load: int
    answers: Sequence[Answer]

    @property
    def place(self) -> tuple[int, int, int]:
        """Key that runs of all methods on the same load in the same round share."""
        return self.concurrency, self.round, self.load

    @property
    def tokens_per_second(self) -> float:
        """Output tokens of all requests, divided by the seconds until the last one ends."""
        num_tokens = sum(len(answer.result.token_ids) for answer in self.answers)
        return num_tokens / max(answer.seconds for answer in self.answers)


def run_interleaved(
    ways: Mapping[str, Way], schedule: Schedule, step: Callable[[str], None]
) -> Iterator[Run]:
    """Run methods interleaved, so that drifts of the machine's speed affect all of them.

    ways: by method. Each answers the first load of a concurrency once as warm-up. step: called
    before each run with its description.
    """
    for size in schedule.concurrency:
        loads = schedule.loads(size)
        for method, answer in ways.items():
            step(f"concurrency {size}, warm-up: {method}")
            answer(loads[0])
        for round_ in range(schedule.rounds):
            for number, load in enumerate(loads):
                for method, answer in ways.items():
                    step(f"concurrency {size}, round {round_ + 1}: {method}")
                    yield Run(method, size, round_, number, answer(load))
