"""Between threads and handlers of requests: streams of chunks, and slow work in a thread."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")


class Stream(Generic[T]):
    """Chunks with the index of their choice, read in the event loop that makes the stream.

    num_choices: generations that fill it. max_unread: maximum unread chunks, beyond which it drops
    them and sets `overflow`. admitted: set when the first choice runs, or the stream fails.
    """

    def __init__(self, num_choices: int, max_unread: float = inf) -> None:
        self._loop = asyncio.get_running_loop()
        self._num_running = num_choices
        self._max_unread = max_unread
        self._unread: list[tuple[int, T]] = []
        self._published = asyncio.Event()
        self.admitted = asyncio.Event()
        if not num_choices:
            self.admitted.set()
        self.overflow = asyncio.Event()
        self._error: BaseException | None = None

    def put(self, index: int, chunks: Sequence[T]) -> None:
        """Add chunks of a choice. Thread-safe."""
        self._call(self._put, index, chunks)

    def admit(self) -> None:
        """Note that a choice runs. Thread-safe."""
        self._call(self.admitted.set)

    def end(self, error: BaseException | None) -> None:
        """Note the end of one generation. Thread-safe."""
        self._call(self._end, error)

    async def next(self, deadline: float = inf) -> list[tuple[int, T]]:
        """The next chunks, at least one; none at the end. Raises the error that ended the stream.

        deadline: by `time.monotonic`; `asyncio.TimeoutError` then.
        """
        while not self._unread and self._num_running and self._error is None:
            self._published.clear()
            await wait_for(self._published, deadline)
        if self._error is not None:
            raise self._error
        chunks, self._unread = self._unread, []
        return chunks

    def fail(self, error: BaseException) -> None:
        """End it with an error, the first one if there are several."""
        self._error = self._error or error
        self.admitted.set()
        self._published.set()

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _put(self, index: int, chunks: Sequence[T]) -> None:
        if self.overflow.is_set():
            return
        self._unread.extend((index, chunk) for chunk in chunks)
        if len(self._unread) > self._max_unread:
            self._unread.clear()
            self.overflow.set()
        self._published.set()

    def _end(self, error: BaseException | None) -> None:
        self._num_running -= 1
        if error is not None:
            self.fail(error)
        self._published.set()


async def wait_for(event: asyncio.Event, deadline: float) -> None:
    """Wait for an event; `asyncio.TimeoutError` at the deadline, by `time.monotonic`.

    A cancellation that comes with the event is kept: before Python 3.12 `asyncio.wait_for` loses
    it, and a request whose client leaves as a chunk comes would run to its end.
    """
    timeout = None if deadline == inf else deadline - monotonic()
    waiting = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait([waiting], timeout=timeout)
    finally:
        waiting.cancel()
    if not done:
        raise asyncio.TimeoutError


async def run_in_thread(work: Callable[[], T]) -> T:
    """The result of `work` in another thread; a cancellation waits until the work is done.

    So a request whose client leaves keeps its slot while a thread works for it.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.wait([working])
    except asyncio.CancelledError:
        await asyncio.gather(working, return_exceptions=True)
        raise
    return working.result()
