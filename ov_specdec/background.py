"""Runs generations in a separate thread and passes their chunks on: for servers."""

from collections.abc import Callable, Sequence

from ov_specdec.chunks import Chunk
from ov_specdec.engine.scheduler import Scheduler
from ov_specdec.generation import Generation, TextGenerator
from ov_specdec.options import GenerationOptions
from ov_specdec.text.prompt import Prompt

Receive = Callable[[Sequence[Chunk]], None]
OnEnd = Callable[[BaseException | None], None]


class Background:
    """Runs generations together in one thread, for readers that must not wait for each other.

    on_error: called with an error that concerns no single generation, and ends the running ones.
    """

    def __init__(self, generator: TextGenerator, on_error: Callable[[Exception], None]) -> None:
        self._generator = generator
        self._loop = generator.loop
        self.kv_cache_tokens = generator.main.num_free or 0
        """Capacity of the main model's KV cache in tokens; 0 if the device manages it."""
        self._loop.start(on_error)

    @property
    def kv_cache_usage(self) -> float:
        """Used fraction of the main model's KV cache, 0 to 1; 0 if the device manages it."""
        free = self._generator.main.num_free
        return 1 - free / self.kv_cache_tokens if free is not None and self.kv_cache_tokens else 0.0

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, with running and waiting sequences."""
        return self._loop.engine.scheduler

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._loop.is_alive

    @property
    def step_seconds(self) -> float:
        """Seconds since the current step began; 0 if none is running."""
        return self._loop.step_seconds

    def check(
        self, ids: Sequence[int], options: GenerationOptions, receive: Receive, on_end: OnEnd
    ) -> Generation:
        """A generation to submit; raises as `stream` does.

        ids: of its prompt, from `encode`. receive: called with chunks as they come, the last one
        with the finish reason. on_end: called once, with the error that ended it, `Cancelled` for
        example. Both run in this thread, or in the one that cancels or closes, and must not block.
        """
        return self._generator.begin(ids, options, receive, on_end)

    def submit(self, generation: Generation) -> None:
        """Queue a generation."""
        self._loop.add(generation.sequence)

    def cancel(self, generation: Generation) -> None:
        """End a generation within one step."""
        self._loop.cancel(generation.sequence)

    def encode(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        """The ids of a prompt; raises as `stream` does."""
        return self._generator.encode(prompt, options)

    def join(self, timeout: float) -> None:
        """After the pipeline was closed, wait up to `timeout` seconds for the thread."""
        self._loop.join(timeout)
