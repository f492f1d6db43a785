"""Runs of several visitors, one at a time; a visitor may cancel their own."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TypeVar

from ov_specdec.demo.cancellation import Cancellation

WAITING = "Waiting for another visitor's run to end \N{HORIZONTAL ELLIPSIS}"
LOADING = "Loading models \N{HORIZONTAL ELLIPSIS}"
STOPPED, DONE = "Stopped.", "Done."

State = TypeVar("State")
States = Generator[tuple[State, str], None, None]
"""States to show, each with a line of status."""


@dataclass(frozen=True, eq=False)
class Place:
    """The place of a visitor's run in the queue. turn: is set once the run may start."""

    visitor: str
    turn: Event = field(default_factory=Event)
    cancellation: Cancellation = field(default_factory=Cancellation)


class RunQueue:
    """The current run and waiting ones: first come, first served."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._lock = Lock()  # runs begin and end in threads of their own

    def run(
        self, visitor: str, state: State, work: Callable[[Cancellation], States[State]]
    ) -> States[State]:
        """Wait for earlier runs, then run `work`. state: shown meanwhile."""
        place = self.join(visitor)
        cancellation = place.cancellation
        try:
            if not place.turn.is_set():
                yield state, WAITING
                cancellation.calls(place.turn.set)
                place.turn.wait()
            if not cancellation.is_set():
                # The next run needs the models, even if this visitor has just left.
                with closing(work(cancellation)) as states:
                    for state, line in states:
                        yield state, line
            yield state, STOPPED if cancellation.is_set() else DONE
        finally:
            self.leave(place)

    def join(self, visitor: str) -> Place:
        """Join the queue for another run of this visitor."""
        place = Place(visitor)
        with self._lock:
            self._places.append(place)
            self._places[0].turn.set()
        return place

    def leave(self, place: Place) -> None:
        """Leave the queue, or end the current run, and let the next one start."""
        with self._lock:
            self._places.remove(place)
            if self._places:
                self._places[0].turn.set()

    def cancel(self, visitor: str) -> None:
        """End the visitor's running generations within one pass, and waiting ones at once."""
        for place in self._held():
            if place.visitor == visitor:
                place.cancellation.set()

    def cancel_all(self) -> None:
        """End all runs."""
        for place in self._held():
            place.cancellation.set()

    def _held(self) -> list[Place]:
        with self._lock:
            return self._places.copy()
