"""Generations that a thread of their own runs, and hands over as they come: for servers."""

from collections.abc import Callable, Sequence

from ov_specdec.chunks import Chunk
from ov_specdec.engine.scheduler import Scheduler
from ov_specdec.generation import Generation, TextGenerator
from ov_specdec.options import GenerationOptions
from ov_specdec.text.prompt import Prompt

Receive = Callable[[Sequence[Chunk]], None]
OnEnd = Callable[[BaseException | None], None]


class Background:
    """Runs generations together in one thread, for readers that may not wait for each other.

    on_error: told of an error that is no single generation's, which ends those that were running.
    """

    def __init__(self, generator: TextGenerator, on_error: Callable[[Exception], None]) -> None:
        self._generator = generator
        self._loop = generator.loop
        self.kv_cache_tokens = generator.main.num_free or 0
        """Tokens that the main model's KV cache has room for; 0 where the device manages it."""
        self._loop.start(on_error)

    @property
    def kv_cache_usage(self) -> float:
        """The part of the main model's KV cache in use, 0 to 1; 0 where the device manages it."""
        free = self._generator.main.num_free
        return 1 - free / self.kv_cache_tokens if free is not None and self.kv_cache_tokens else 0.0

    @property
    def scheduler(self) -> Scheduler:
        """What is running and waiting."""
        return self._loop.engine.scheduler

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._loop.is_alive

    @property
    def step_seconds(self) -> float:
        """How long a step is running already; 0 while none is."""
        return self._loop.step_seconds

    def check(
        self, ids: Sequence[int], options: GenerationOptions, receive: Receive, on_end: OnEnd
    ) -> Generation:
        """A generation that is yet to be submitted; raises what `stream` raises.

        ids: of its prompt, as `encode` gives them. receive: is handed chunks as they come, the last
        one with the finish reason. on_end: is called once, with the error that has ended it,
        `Cancelled` for example. Both are called in the thread, or in that which cancels or closes,
        and may not wait.
        """
        return self._generator.begin(ids, options, receive, on_end)

    def submit(self, generation: Generation) -> None:
        """Have a generation run as soon as there is room."""
        self._loop.add(generation.sequence)

    def cancel(self, generation: Generation) -> None:
        """End a generation within one step."""
        self._loop.cancel(generation.sequence)

    def encode(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        """The ids of a prompt; raises what `stream` raises."""
        return self._generator.encode(prompt, options)

    def join(self, timeout: float) -> None:
        """Wait, once the pipeline is closed, until the thread has ended, for so many seconds."""
        self._loop.join(timeout)
