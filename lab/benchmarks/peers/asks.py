"""What methods are asked, one request at a time or several, and what they answer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Literal, Protocol

from lab.benchmarks.models import Models
from ov_specdec.errors import SpecdecError

if TYPE_CHECKING:
    from ov_specdec.models.devices import StaticSizes


class BenchmarkError(SpecdecError):
    """A method that cannot run on this machine or with these models."""


@dataclass(frozen=True)
class Setup:
    """What all methods of one measurement share.

    scratch: a folder for what openvino.genai wants converted. static_shapes, is_prepared: of this
    project's own methods. max_batch_size: requests at once. kv_cache_gb: memory for kept prefixes,
    of those programs that keep them; None: prompts are read anew.
    """

    models: Models
    scratch: str = ""
    static_shapes: "StaticSizes" = "auto"
    is_prepared: bool = True
    max_batch_size: int = 1
    kv_cache_gb: float | None = None


@dataclass(frozen=True)
class Ask:
    """One generation; greedy at temperature 0.

    ends: an end-of-sequence token ends the output. json_schema: what it fits; "" for any text.
    json_whitespace: of this project's JSON; openvino.genai always writes any. context: its
    namespace of kept prefixes; None: all of the prompt is read.
    """

    prompt_ids: Sequence[int]
    max_new_tokens: int
    temperature: float = 0.0
    ends: bool = False
    json_schema: str = ""
    json_whitespace: Literal["compact", "any"] = "compact"
    context: str | None = None


@dataclass(frozen=True)
class Measurement:
    """What one generation took.

    token_ids: the output. seconds: from the call to its return. first_token_seconds: from the call
    to the first token. main_passes: passes of the main model, the prefill among them. drafted,
    accepted: draft tokens. The last three are None where a method does not tell.
    """

    token_ids: list[int]
    seconds: float
    first_token_seconds: float
    main_passes: int | None = None
    drafted: int | None = None
    accepted: int | None = None

    @property
    def speed(self) -> float:
        """Tokens per second from the call to its return: the first token counts."""
        return len(self.token_ids) / self.seconds


class Runner(Protocol):
    """A program with its models loaded, ready to generate."""

    def run(self, ask: Ask, length: int | None) -> Measurement:
        """Continue a prompt. length: draft tokens a round; None: as the program decides."""
        ...


@dataclass(frozen=True)
class Progress:
    """What one step added to one request."""

    number: int
    token_ids: list[int]
    has_ended: bool


class Engine(Protocol):
    """A method that answers several requests at once, with its models loaded."""

    def add(self, number: int, ask: Ask, length: int | None) -> None:
        """Take a request. length: see `Runner`."""
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


def serve_load(engine: Engine, asks: Sequence[Ask], length: int | None) -> list[Served]:
    """Have an engine serve requests that come together, to their end, in this thread."""
    running = set(range(len(asks)))
    served = [Served([], []) for _ in asks]
    start = perf_counter()
    for number, ask in enumerate(asks):
        engine.add(number, ask, length)
    while running:
        for progress in engine.step():
            served[progress.number].token_ids.extend(progress.token_ids)
            served[progress.number].steps.append((perf_counter() - start, len(progress.token_ids)))
            if progress.has_ended:
                running.remove(progress.number)
    return served


def decoding_speed(served: Sequence[Served]) -> dict[str, float]:
    """The speed of a load once every request has its first token, which took "first" seconds.

    speed: tokens per second of all, to the end of the last. each: of a request, to its own end.
    Both are 0 if none goes on after the last first token.
    """
    begin = max(request.steps[0][0] for request in served)
    seconds = [max(request.steps[-1][0] - begin, 0.0) for request in served]
    later = sum(number for request in served for at, number in request.steps if at > begin)
    speed, each = (later / max(seconds), later / sum(seconds)) if later else (0.0, 0.0)
    return {"speed": speed, "each": each, "first": begin}
