"""`Answers`: reads answers again between requests, as the prompts that they become part of."""

from collections import deque
from collections.abc import Generator, Hashable, Sequence
from contextlib import suppress

from ov_specdec.engine.scheduler import SHARED_CHUNK
from ov_specdec.errors import CacheFullError
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, forward

MOST_KEPT = 16
"""Answers that wait to be read; the newest are read first."""


class Answers:
    """Prompts with their answers, which a next turn of a conversation will begin with.

    KV entries of generated tokens serve no later prompt if those of a prompt have other bits. So
    that a next turn need not wait for them, they are computed while nothing else runs. From any
    thread. main: the model that gave them.
    """

    def __init__(self, main: Runner) -> None:
        self._main = main
        self._unread: deque[tuple[Sequence[int], Hashable]] = deque(maxlen=MOST_KEPT)

    def add(self, tokens: Sequence[int], namespace: Hashable) -> None:
        """Note a prompt with its answer. namespace: of its cached prefix."""
        if self._main.separates_generated:
            self._unread.append((tokens, namespace))

    @property
    def is_pending(self) -> bool:
        """Whether there are answers to read."""
        return bool(self._unread)

    def passes(self) -> Generator[None, None, None]:
        """Read them, one pass at each `next`. The models must not be in use.

        Closed before its end, it keeps what it has read; the answer is read to its end later.
        """
        while self._unread:
            tokens, namespace = self._unread.pop()
            cache = CachedSequence(self._main, namespace)
            try:
                with suppress(CacheFullError):
                    for waiting in cache.advance(tokens):
                        forward([waiting], [waiting.span(SHARED_CHUNK)])
                        yield
            except GeneratorExit:
                self._unread.append((tokens, namespace))
                raise
            finally:
                cache.free()
