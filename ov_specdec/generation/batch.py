"""`Batch`: prompts that arrive over time and run together, step by step."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from ov_specdec.engine.sequence import Sequence
from ov_specdec.errors import OptionError
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import Chunk
from ov_specdec.text.prompt import Prompt

K = TypeVar("K", bound=Hashable)


class Batch(Generic[K]):
    """Open prompts, driven by one thread: it adds them, runs steps, and reads chunks.

    `SpeculativePipeline.open_batch` makes one. Its length is the number of unfinished prompts.
    Prompts without room wait, first come, first served. Use it as a context, or `close` it, which
    cancels unfinished prompts.
    """

    def __init__(
        self, generator: TextGenerator, complete_options: Callable[..., GenerationOptions]
    ) -> None:
        self._generator = generator
        self._complete_options = complete_options
        self._running: dict[K, Sequence] = {}

    def try_grammars(self) -> None:
        """Try each new grammar in a child process first, since others may have made it."""
        self._generator.texts.grammars.try_first()

    def add(
        self, key: K, prompt: Prompt, options: GenerationOptions | None = None, **named: Any
    ) -> None:
        """Add a prompt, with options as for `SpeculativePipeline.stream`.

        key: identifies it in the results of `step`. Raises `OptionError` for an invalid prompt or
        option, or a key of another open prompt.
        """
        if key in self._running:
            raise OptionError("{key} is the key of an open prompt: give another key", key=key)
        complete = self._complete_options(options, **named)
        ids = self._generator.prompts.encode(prompt, complete)
        self._running[key] = self._generator.begin(ids, complete)
        self._generator.loop.add(self._running[key])

    def step(self) -> list[tuple[K, Chunk | BaseException]]:
        """Run one step of all prompts: a round of each, or a chunk of its prefill.

        Returns the new chunks with their keys. The last chunk of a prompt has a finish reason. A
        failed prompt has its error instead, and the others continue.
        """
        if self._running:
            self._generator.loop.step()
        news = list[tuple[K, Chunk | BaseException]]()
        for key, sequence in [*self._running.items()]:
            has_ended = sequence.has_ended  # another thread may be stepping it
            unread = sequence.output.unread
            news += [(key, unread.popleft()) for _ in range(len(unread))]
            if has_ended:
                del self._running[key]
                news += [(key, sequence.error)] if sequence.error else []
        return news

    def cancel(self, key: K) -> None:
        """End a prompt within one pass; the next step returns its last chunk, "cancelled"."""
        if key in self._running:
            self._running[key].cancel()

    def close(self) -> None:
        """End all prompts without a last chunk."""
        running, self._running = self._running, {}
        for sequence in running.values():
            self._generator.loop.cancel(sequence)

    def __len__(self) -> int:
        return len(self._running)

    def __enter__(self) -> "Batch[K]":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
