"""A load of requests that come together or one after the other, and the loop that serves it."""

import itertools
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, sleep
from typing import Any, Protocol

from ov_specdec.checks import require_number
from ov_specdec.errors import Option, OptionError

TOGETHER = "together"
POISSON = "poisson:"


@dataclass(frozen=True)
class Load:
    """Requests, each with its prompt and the second at which it comes, the earliest first.

    concurrency: most that are under way at a time; others wait until one has ended.
    """

    prompts: Sequence[Sequence[int]]
    arrivals: Sequence[float]
    max_new_tokens: int
    concurrency: int


@dataclass(frozen=True)
class Progress:
    """What one step added to one request. drafted, accepted: of the whole request, at its end."""

    number: int
    token_ids: list[int]
    has_ended: bool
    drafted: int | None = None
    accepted: int | None = None


class Engine(Protocol):
    """A method that answers several requests at once, with its models loaded."""

    def add(self, number: int, prompt_ids: Sequence[int], max_new_tokens: int) -> None:
        """Take a request: to be continued greedily, past any end-of-sequence token."""
        ...

    def step(self) -> Iterable[Progress]:
        """Go on with all requests; what was added to those that got tokens."""
        ...


@dataclass(frozen=True)
class Served:
    """One request of a load, as it was served; in seconds since the load began.

    steps: when each step that gave it tokens had ended, and how many. drafted, accepted: None where
    the method does not draft or does not tell.
    """

    arrival: float
    prompt_tokens: int
    token_ids: list[int]
    steps: list[tuple[float, int]]
    drafted: int | None
    accepted: int | None

    @property
    def first_token_seconds(self) -> float:
        """From its arrival, time in the queue included."""
        return self.steps[0][0] - self.arrival

    @property
    def step_seconds(self) -> list[float]:
        """Between its steps, from its first tokens to its last."""
        times = [time for time, _ in self.steps]
        return [after - before for before, after in itertools.pairwise(times)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Served":
        """What `as_dict` wrote."""
        steps = [(time, num_tokens) for time, num_tokens in content["steps"]]
        return cls(**{**content, "steps": steps})


def check_arrivals(arrivals: str) -> None:
    """Refuse what is neither "together" nor "poisson:RATE" with `OptionError`."""
    if arrivals != TOGETHER:
        _rate(arrivals)


def arrival_seconds(arrivals: str, num_requests: int, seed: int) -> list[float]:
    """When so many requests come: all at 0, or as a Poisson process with a rate per second.

    The first one comes at 0. The same seed gives the same seconds.
    """
    if arrivals == TOGETHER:
        return [0.0] * num_requests
    generator, rate = random.Random(seed), _rate(arrivals)
    seconds = [0.0]
    while len(seconds) < num_requests:
        seconds.append(seconds[-1] + generator.expovariate(rate))
    return seconds


def _rate(arrivals: str) -> float:
    allowed = " must be 'together' or 'poisson:RATE', RATE per second"
    refused = OptionError(Option("arrivals", arrivals), allowed)
    if not arrivals.startswith(POISSON):
        raise refused
    try:
        rate = float(arrivals.removeprefix(POISSON))
        require_number("RATE", rate, above=0.0)
    except ValueError as error:
        raise refused from error
    return rate


def serve_load(engine: Engine, load: Load) -> list[Served]:
    """Have an engine serve a load to its end, in this thread; the requests in their order."""
    waiting = deque(range(len(load.prompts)))
    running: set[int] = set()
    news: dict[int, list[tuple[float, Progress]]] = {number: [] for number in waiting}
    start = perf_counter()
    while waiting or running:
        while waiting and len(running) < load.concurrency:
            early = load.arrivals[waiting[0]] - (perf_counter() - start)
            if early > 0 and running:
                break
            sleep(max(early, 0.0))
            running.add(number := waiting.popleft())
            engine.add(number, load.prompts[number], load.max_new_tokens)
        for progress in engine.step():
            news[progress.number].append((perf_counter() - start, progress))
            if progress.has_ended:
                running.remove(progress.number)
    return [_served(load, number, news[number]) for number in news]


def _served(load: Load, number: int, news: Sequence[tuple[float, Progress]]) -> Served:
    last = news[-1][1]
    return Served(
        arrival=load.arrivals[number],
        prompt_tokens=len(load.prompts[number]),
        token_ids=[token for _, progress in news for token in progress.token_ids],
        steps=[(seconds, len(progress.token_ids)) for seconds, progress in news],
        drafted=last.drafted,
        accepted=last.accepted,
    )
