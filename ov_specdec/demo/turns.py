"""Who may use the models: one run at a time, in the order in which they were asked for."""

from collections import deque
from threading import Event, Lock


class Turns:
    """A queue of runs. Each waits for the event that it was given."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queue: deque[Event] = deque()

    def join(self) -> Event:
        """A place at the end of the queue: an event that is set once it is this run's turn."""
        turn = Event()
        with self._lock:
            self._queue.append(turn)
            self._queue[0].set()
        return turn

    def leave(self, turn: Event) -> None:
        """Give up a place, which may be the first one, and let the next run begin."""
        with self._lock:
            self._queue.remove(turn)
            if self._queue:
                self._queue[0].set()
