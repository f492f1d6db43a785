"""Exclusive use of the models: one run at a time, first come, first served."""

from collections import deque
from threading import Event, Lock


class Turns:
    """A queue of runs. Each waits for its own event."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queue: deque[Event] = deque()

    def join(self) -> Event:
        """Join the queue. Returns an event that is set once this run may start."""
        turn = Event()
        with self._lock:
            self._queue.append(turn)
            self._queue[0].set()
        return turn

    def leave(self, turn: Event) -> None:
        """Leave the queue, or end the current run, and let the next one start."""
        with self._lock:
            self._queue.remove(turn)
            if self._queue:
                self._queue[0].set()
