"""Who is served when: so many generations run, others wait, and more are refused."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ov_specdec.openai import ApiError
from ov_specdec.openai.errors import invalid

RETRY_AFTER = 1
"""Seconds that a client is told to wait while the queue is full: about what an answer takes."""


class Queue:
    """Places for generations: `num_places` that run at a time, and `max_waiting` that wait.

    Requests that wait get their turn key by key, and those of one key as they came, so that nobody
    waits for all that another key has asked. In the event loop alone.
    """

    def __init__(self, num_places: int, max_waiting: int) -> None:
        self._num_places = num_places
        self._room = num_places + max_waiting
        self._num_running = 0
        # By key; the first one's turn is next.
        self._waiting: OrderedDict[str | None, deque[Place]] = OrderedDict()
        self.num_active = 0
        """Generations that have entered and not left."""

    @property
    def num_waiting(self) -> int:
        """Generations that wait for their turn."""
        return sum(place.size for places in self._waiting.values() for place in places)

    @contextmanager
    def entered(self, key: str | None) -> Iterator["Place"]:
        """A place for one generation, before anything of its request is read.

        key: of the client. Raises `ApiError` where there is no room to wait.
        """
        place = Place(self, key)
        self._enter(1)
        try:
            yield place
        finally:
            self._leave(place)

    def grow(self, place: "Place", size: int, n: int) -> None:
        """Make it a place for so many generations: see `Place`."""
        if size > self._room:
            param, what = ("n", "choices") if n > 1 else ("prompt", "prompts")
            raise invalid(param, f"{size} {what} are more than the {self._room} that run and wait")
        self._enter(size - place.size)
        place.size = size

    def wait(self, place: "Place") -> None:
        """Let it wait for its turn, which may come at once."""
        self._waiting.setdefault(place.key, deque()).append(place)
        self._serve()

    def _enter(self, size: int) -> None:
        if self.num_active + size > self._room:
            raise ApiError(
                429,
                f"{self.num_active} requests are running or waiting: try again later",
                code="queue_full",
                retry_after=RETRY_AFTER,
            )
        self.num_active += size

    def _leave(self, place: "Place") -> None:
        self.num_active -= place.size
        if place.has_turn.is_set():
            self._num_running -= self._num_needed(place)
        elif place in self._waiting.get(place.key, ()):
            self._waiting[place.key].remove(place)
            if not self._waiting[place.key]:
                del self._waiting[place.key]
        self._serve()

    def _serve(self) -> None:
        """Give turns while there are places; nobody overtakes one that needs several."""
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
        """Places that it runs on: all of them where it has more generations than those."""
        return min(place.size, self._num_places)


@dataclass(eq=False)
class Place:
    """A request in a queue: it enters, grows to its size once that is known, and has its turn."""

    queue: Queue
    key: str | None
    size: int = 1
    has_turn: asyncio.Event = field(default_factory=asyncio.Event)

    def grow(self, size: int, n: int = 1) -> None:
        """Take so many generations. n: how many of them each prompt has, for the message.

        Raises `ApiError` where there is no room for them.
        """
        self.queue.grow(self, size, n)

    async def turn(self, timeout: float) -> None:
        """Wait for its turn, for so many seconds; `ApiError` then."""
        self.queue.wait(self)
        try:
            await asyncio.wait_for(self.has_turn.wait(), timeout)
        except asyncio.TimeoutError as error:
            raise ApiError(
                503,
                f"the request has waited {timeout:g} s for its turn: try again later",
                code="queue_timeout",
                retry_after=RETRY_AFTER,
            ) from error
