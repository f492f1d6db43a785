"""`ChunkStream`: an iterator over the chunks of an output that any thread may cancel."""

from collections.abc import Callable, Generator
from inspect import GEN_RUNNING, getgeneratorstate
from threading import RLock
from typing import Generic, TypeVar

from typing_extensions import Self

C = TypeVar("C")


class ChunkStream(Generic[C]):
    """The chunks of one output.

    chunks: a generator of them. cancel: has it end within one pass. Thread-safe.
    """

    def __init__(self, chunks: Generator[C, None, None], cancel: Callable[[], None]) -> None:
        self._chunks = chunks
        self._cancel = cancel
        self._advancing = RLock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> C:
        with self._advancing:
            return next(self._chunks)

    def cancel(self) -> None:
        """End it within one pass; its last chunk has finish_reason "cancelled".

        Returns at once. May be called from any thread, and during the prefill.
        """
        self._cancel()

    def close(self) -> None:
        """End it without a last chunk, and free its memory.

        Waits for a pass that is running in another thread. Within one of its own logits
        processors, it acts like `cancel`.
        """
        self.cancel()
        with self._advancing:
            if getgeneratorstate(self._chunks) != GEN_RUNNING:
                self._chunks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
