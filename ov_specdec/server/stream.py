"""What the generations of one request hand over, from the thread that runs them to its handler."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_UNREAD = 1024
"""Pieces that a stream may be ahead of its reader: more than any network delays, and yet little
memory. The socket has buffers of its own."""


class Stream(Generic[T]):
    """Chunks by the index of their choice, read in an event loop. To be made in it.

    num_choices: generations that fill it. max_unread: chunks that nobody has read, more than which
    are dropped, and `overflow` is set; None for an answer that is read at its end.
    """

    def __init__(self, num_choices: int, max_unread: int | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._num_running = num_choices
        self._max_unread = max_unread
        self._unread: deque[tuple[int, T]] = deque()
        self._published = asyncio.Event()
        self.overflow = asyncio.Event()
        self._error: BaseException | None = None

    def receiver(self, index: int) -> Callable[[Sequence[T]], None]:
        """What takes the chunks of a choice, in any thread."""

        def receive(chunks: Sequence[T]) -> None:
            self._call(self._put, index, chunks)

        return receive

    def end(self, error: BaseException | None) -> None:
        """One generation has ended. From any thread."""
        self._call(self._end, error)

    async def next(self, deadline: float | None = None) -> tuple[int, T] | None:
        """The next chunk; None where there are no more. Raises the error that has ended it.

        deadline: by `time.monotonic`; `asyncio.TimeoutError` then.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._unread:
                return self._unread.popleft()
            if not self._num_running:
                return None
            self._published.clear()
            timeout = None if deadline is None else deadline - monotonic()
            await asyncio.wait_for(self._published.wait(), timeout)

    async def next_all(self) -> list[tuple[int, T]]:
        """All chunks that have come, at least one; none where there are no more. See `next`."""
        first = await self.next()
        if first is None:
            return []
        rest, self._unread = self._unread, deque()
        return [first, *rest]

    def fail(self, error: BaseException) -> None:
        """End it with an error, the first one if there are several."""
        self._error = self._error or error
        self._published.set()

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _put(self, index: int, chunks: Sequence[T]) -> None:
        if self.overflow.is_set():
            return
        self._unread.extend((index, chunk) for chunk in chunks)
        if self._max_unread is not None and len(self._unread) > self._max_unread:
            self._unread.clear()
            self.overflow.set()
        self._published.set()

    def _end(self, error: BaseException | None) -> None:
        self._num_running -= 1
        if error is not None:
            self.fail(error)
        self._published.set()
