"""Prompts that come one after the other and are answered together, step by step."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from ov_specdec.chunks import Chunk
from ov_specdec.engine import Cancelled
from ov_specdec.errors import Option, OptionError
from ov_specdec.generation import Generation, TextGenerator
from ov_specdec.options import GenerationOptions
from ov_specdec.text.prompt import Prompt

K = TypeVar("K", bound=Hashable)


class Batch(Generic[K]):
    """Prompts under way, driven by one thread: it adds them, has steps run, and reads chunks.

    `SpeculativePipeline.open_batch` makes one. Its length is the number of prompts that have not
    ended. Those that find no room wait, first come first served. Use it as a context, or `close`
    it: what has not ended then is cancelled.
    """

    def __init__(
        self, generator: TextGenerator, complete_options: Callable[..., GenerationOptions]
    ) -> None:
        self._generator = generator
        self._complete_options = complete_options
        self._running: dict[K, Generation] = {}
        self._news: deque[tuple[K, Chunk | BaseException]] = deque()

    def add(self, key: K, prompt: Prompt, **options: Any) -> None:
        """Take a prompt, with options as `SpeculativePipeline.stream` has them.

        key: names it in what `step` returns. Raises `OptionError` where prompt or options cannot be
        used, or the key is that of a prompt under way.
        """
        if key in self._running:
            raise OptionError(Option("key", key), " is under way already: give another key")

        def receive(chunks: Sequence[Chunk]) -> None:
            self._news.extend((key, chunk) for chunk in chunks)

        def on_end(error: BaseException | None) -> None:
            generation = self._running.pop(key, None)
            if generation is None:  # closed
                return
            if isinstance(error, Cancelled):
                self._news.append((key, generation.output.cancelled()))
            elif error is not None:
                self._news.append((key, error))

        complete = self._complete_options(**options)
        ids = self._generator.encode(prompt, complete)
        self._running[key] = self._generator.begin(ids, complete, receive, on_end)
        self._generator.loop.add(self._running[key].sequence)

    def step(self) -> list[tuple[K, Chunk | BaseException]]:
        """Run one step of all prompts: a round of each, or a part of reading it.

        Returns the chunks that came of it, by key. The last chunk of a prompt has a finish reason;
        a prompt that fails has the error in its place, and the others go on.
        """
        if self._running:
            self._generator.loop.step()
        return [self._news.popleft() for _ in range(len(self._news))]

    def cancel(self, key: K) -> None:
        """End a prompt within one pass; its last chunk comes with the next step and says so."""
        if key in self._running:
            self._running[key].sequence.cancel()

    def close(self) -> None:
        """End all prompts without a last chunk."""
        running, self._running = self._running, {}
        for generation in running.values():
            self._generator.loop.cancel(generation.sequence)
        self._news.clear()

    def __len__(self) -> int:
        return len(self._running)

    def __enter__(self) -> "Batch[K]":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
