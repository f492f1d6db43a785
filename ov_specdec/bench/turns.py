"""Methods in turns: each load by every method, then the next load, round by round."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ov_specdec.bench.requests_at_once import Answer

Way = Callable[[Sequence[str]], Sequence[Answer]]
"""A method that answers a load, with its models loaded."""


@dataclass(frozen=True)
class Schedule:
    """What is measured. concurrency: how many requests come together, one number after the other.

    rounds: how often each method answers each load.
    """

    prompts: Sequence[str]
    concurrency: Sequence[int]
    rounds: int

    def loads(self, size: int) -> list[list[str]]:
        """The loads of one round: as many of a size as all prompts fill, at least one."""
        num_prompts = len(self.prompts)
        return [
            [self.prompts[i % num_prompts] for i in range(first, first + size)]
            for first in range(0, max(num_prompts - size, 0) + 1, size)
        ]

    @property
    def num_turns(self) -> int:
        """How often each method has its turn, those to warm up included."""
        return sum(1 + self.rounds * len(self.loads(size)) for size in self.concurrency)


@dataclass(frozen=True)
class Run:
    """One load as one method answered it. concurrency: requests of the load, the `load`-th one."""

    method: str
    concurrency: int
    round: int
    load: int
    answers: Sequence[Answer]

    @property
    def place(self) -> tuple[int, int, int]:
        """Where the runs of all methods are neighbours: of the same load in the same round."""
        return self.concurrency, self.round, self.load

    @property
    def tokens_per_second(self) -> float:
        """Output tokens of all requests by the seconds until the last one has ended."""
        num_tokens = sum(len(answer.result.token_ids) for answer in self.answers)
        return num_tokens / max(answer.seconds for answer in self.answers)


def take_turns(
    ways: Mapping[str, Way], schedule: Schedule, step: Callable[[str], None]
) -> Iterator[Run]:
    """Measure methods in turns, so that what slows the machine for a while slows all of them.

    ways: by method. Each answers the first load of a concurrency once to warm up. step: told what
    comes next, before each turn.
    """
    for size in schedule.concurrency:
        loads = schedule.loads(size)
        for method, answer in ways.items():
            step(f"{size} at once, warm-up: {method}")
            answer(loads[0])
        for round_ in range(schedule.rounds):
            for number, load in enumerate(loads):
                for method, answer in ways.items():
                    step(f"{size} at once, round {round_ + 1}: {method}")
                    yield Run(method, size, round_, number, answer(load))
