"""A load of requests that come together, and the loop that serves it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol


@dataclass(frozen=True)
class Request:
    """One request. length: draft tokens a round; None: as the program decides.

    context: its namespace of kept prefixes; None: it reads all of its prompt.
    """

    prompt_ids: Sequence[int]
    max_new_tokens: int
    length: int | None = None
    context: str | None = None


@dataclass(frozen=True)
class Progress:
    """What one step added to one request."""

    number: int
    token_ids: list[int]
    has_ended: bool


class Engine(Protocol):
    """A method that answers several requests at once, with its models loaded."""

    def add(self, number: int, request: Request) -> None:
        """Take a request: to be continued greedily, past any end-of-sequence token."""
        ...

    def step(self) -> Iterable[Progress]:
        """Go on with all requests; what was added to those that got tokens."""
        ...


@dataclass(frozen=True)
class Served:
    """One request of a load, as it was served.

    steps: when each step that gave it tokens had ended, in seconds since the load began, and how
    many tokens.
    """

    token_ids: list[int]
    steps: list[tuple[float, int]]


def serve_load(engine: Engine, requests: Sequence[Request]) -> list[Served]:
    """Have an engine serve a load to its end, in this thread; the requests in their order."""
    running = set(range(len(requests)))
    served = [Served([], []) for _ in requests]
    start = perf_counter()
    for number, request in enumerate(requests):
        engine.add(number, request)
    while running:
        for progress in engine.step():
            served[progress.number].token_ids.extend(progress.token_ids)
            served[progress.number].steps.append((perf_counter() - start, len(progress.token_ids)))
            if progress.has_ended:
                running.remove(progress.number)
    return served


def decoding_speed(served: Sequence[Served]) -> tuple[float, float]:
    """Tokens per second of a load once every request has its first token, and when that was."""
    begin = max(each.steps[0][0] for each in served)
    end = max(each.steps[-1][0] for each in served)
    later = sum(number for each in served for at, number in each.steps if at > begin)
    return (later / (end - begin) if end > begin else 0.0), begin
