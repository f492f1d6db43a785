"""Prompts that come one after the other and are answered together, step by step."""

from collections.abc import Callable, Generator, Hashable, Iterator
from typing import Any

from ov_specdec.chunks import Chunk
from ov_specdec.errors import OptionError
from ov_specdec.generation import TextGenerator
from ov_specdec.options import GenerationOptions
from ov_specdec.scheduling import Request
from ov_specdec.text.prompt import Prompt

News = tuple[Hashable, Chunk | Exception]
"""A chunk of the prompt that was added under this key, or the error that ended it."""


class Batch:
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
        self._running: dict[Hashable, tuple[Request[Chunk], Generator[Chunk, None, None]]] = {}

    def add(self, key: Hashable, prompt: Prompt, **options: Any) -> None:
        """Take a prompt, with options as `SpeculativePipeline.stream` has them.

        key: names it in what `step` returns. Raises `OptionError` where prompt or options cannot be
        used, or the key is that of a prompt under way.
        """
        if key in self._running:
            raise OptionError(f"key={key!r} is under way already: give another key")
        self._running[key] = self._generator.submit(prompt, self._complete_options(**options))

    def step(self) -> list[News]:
        """Run one step of all prompts: a round of each, or a part of reading it.

        Returns the chunks that came of it. The last chunk of a prompt has a finish reason; a prompt
        that fails has the error in its place, and the others go on.
        """
        if self._running:
            self._generator.turns.step()
        return [news for key in list(self._running) for news in self._read(key)]

    def cancel(self, key: Hashable) -> None:
        """End a prompt within one pass; its last chunk comes with the next step and says so."""
        if key in self._running:
            self._running[key][0].cancel()

    def close(self) -> None:
        """End all prompts without a last chunk."""
        for request, chunks in self._running.values():
            self._generator.turns.cancel(request)
            chunks.close()
        self._running.clear()

    def __len__(self) -> int:
        return len(self._running)

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, key: Hashable) -> Iterator[News]:
        """What there is to read of a prompt now."""
        request, chunks = self._running[key]
        try:
            while request.has_news:
                if (chunk := next(chunks, None)) is None:
                    del self._running[key]
                    return
                yield key, chunk
        except Exception as error:  # whatever a processor of this prompt raised
            del self._running[key]
            yield key, error
