"""A load of requests that come together, and the loop that serves it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Protocol


@dataclass(frozen=True)
class Load:
    """Requests that are all there from the start, each with its prompt."""

    prompts: Sequence[Sequence[int]]
    max_new_tokens: int


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

    token_ids: list[int]
    steps: list[tuple[float, int]]
    drafted: int | None
    accepted: int | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def serve_load(engine: Engine, load: Load) -> list[Served]:
    """Have an engine serve a load to its end, in this thread; the requests in their order."""
    running = set(range(len(load.prompts)))
    news: dict[int, list[tuple[float, Progress]]] = {number: [] for number in running}
    start = perf_counter()
    for number, prompt in enumerate(load.prompts):
        engine.add(number, prompt, load.max_new_tokens)
    while running:
        for progress in engine.step():
            news[progress.number].append((perf_counter() - start, progress))
            if progress.has_ended:
                running.remove(progress.number)
    return [_served(each) for each in news.values()]


def _served(news: Sequence[tuple[float, Progress]]) -> Served:
    last = news[-1][1]
    return Served(
        token_ids=[token for _, progress in news for token in progress.token_ids],
        steps=[(seconds, len(progress.token_ids)) for seconds, progress in news],
        drafted=last.drafted,
        accepted=last.accepted,
    )
