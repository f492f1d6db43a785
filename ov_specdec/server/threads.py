"""Runs the slow work of requests in other threads."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T]) -> T:
    """The result of `work` in another thread; a cancellation waits until the work is done.

    So a request whose client leaves keeps its place in the queue while a thread works for it.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.wait([working])
    except asyncio.CancelledError:
        await asyncio.gather(working, return_exceptions=True)
        raise
    return working.result()
