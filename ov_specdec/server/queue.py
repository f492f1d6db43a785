"""The request queue: a limited number of generations run, others wait or are rejected with 429."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ov_specdec.openai import ApiError
from ov_specdec.openai.errors import invalid

RETRY_AFTER = 1
"""Retry-After in seconds while the queue is full: about the time of an answer."""


class Queue:
    """Places for generations: `num_places` run concurrently, and up to `max_waiting` wait.

    Waiting requests are admitted round-robin over API keys, and in order of arrival for each key.
    A full queue still takes one request of each key that has no other in it. So no key can starve
    others. Not thread-safe: for the event loop only.
    """

    def __init__(self, num_places: int, max_waiting: int) -> None:
        self._num_places = num_places
        self._room = num_places + max_waiting
        self._num_running = 0
        # By key; the first one is next.
        self._waiting: OrderedDict[str | None, deque[Place]] = OrderedDict()
        self._num_active: Counter[str | None] = Counter()
        """Running and waiting generations, by key."""

    @property
    def num_active(self) -> int:
        """Running and waiting generations."""
        return self._num_active.total()

    @property
    def num_waiting(self) -> int:
        """Waiting generations."""
        return sum(place.size for places in self._waiting.values() for place in places)

    @contextmanager
    def entered(self, key: str | None) -> Iterator["Place"]:
        """A place for one generation, before its request is read.

        key: of the client. Raises `ApiError` if the queue is full for it.
        """
        place = Place(self, key)
        self._enter(place, 1)
        try:
            yield place
        finally:
            self._leave(place)

    def grow(self, place: "Place", size: int, n: int) -> None:
        """Extend it to `size` generations: see `Place`."""
        if size > self._room:
            param, what = ("n", "choices") if n > 1 else ("prompt", "prompts")
            room = f"the {self._room} places of the queue"
            raise invalid(param, f"{size} {what} exceed {room}: send fewer")
        self._enter(place, size)

    def wait(self, place: "Place") -> None:
        """Queue it; it may be admitted at once."""
        self._waiting.setdefault(place.key, deque()).append(place)
        self._serve()

    def _enter(self, place: "Place", size: int) -> None:
        """Extend a place to `size` generations, if there is room or its key has no other place."""
        added = size - place.size
        is_only = self._num_active[place.key] == place.size
        if self.num_active + added > self._room and not is_only:
            raise ApiError(
                429,
                f"{self.num_active} requests are running or waiting: try again later",
                code="queue_full",
                retry_after=RETRY_AFTER,
            )
        self._num_active[place.key] += added
        place.size = size

    def _leave(self, place: "Place") -> None:
        self._num_active[place.key] -= place.size
        if place.has_turn.is_set():
            self._num_running -= self._num_needed(place)
        elif place in self._waiting.get(place.key, ()):
            self._waiting[place.key].remove(place)
            if not self._waiting[place.key]:
                del self._waiting[place.key]
        self._serve()

    def _serve(self) -> None:
        """Admit requests while there are places; none overtakes one that needs several."""
        while self._waiting:
            key, places = next(iter(self._waiting.items()))
            if self._num_running + self._num_needed(places[0]) > self._num_places:
                return
            place = places.popleft()
            self._num_running += self._num_needed(place)
            place.has_turn.set()
            self._waiting.move_to_end(key)
            if not places:
                del self._waiting[key]

    def _num_needed(self, place: "Place") -> int:
        """Places that it needs: at most all of them."""
        return min(place.size, self._num_places)


@dataclass(eq=False)
class Place:
    """A request in the queue: it enters, grows to its number of generations, and is admitted."""

    queue: Queue
    key: str | None
    size: int = 0
    has_turn: asyncio.Event = field(default_factory=asyncio.Event)

    def grow(self, size: int, n: int = 1) -> None:
        """Grow to `size` generations. n: choices of each prompt, for the message.

        Raises `ApiError` if the queue has no room for them.
        """
        self.queue.grow(self, size, n)

    async def turn(self, timeout: float) -> None:
        """Wait for admission; `ApiError` after `timeout` seconds."""
        self.queue.wait(self)
        try:
            await asyncio.wait_for(self.has_turn.wait(), timeout)
        except asyncio.TimeoutError as error:
            raise ApiError(
                503,
                f"the request waited {timeout:g} s in the queue: try again later",
                code="queue_timeout",
                retry_after=RETRY_AFTER,
            ) from error
