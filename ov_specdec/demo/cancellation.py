"""Cancels the runs of one visitor."""

from collections.abc import Callable
from threading import Event, Lock


class Cancellation:
    """Ends one run from any thread, in any state."""

    def __init__(self) -> None:
        self._event = Event()
        self._end: Callable[[], None] | None = None

    def is_set(self) -> bool:
        """Whether the run was cancelled."""
        return self._event.is_set()

    def set(self) -> None:
        """Cancel the run."""
        self._event.set()
        if self._end is not None:
            self._end()

    def calls(self, end: Callable[[], None]) -> None:
        """Call `end` on cancellation, or at once if the run is already cancelled.

        Replaces the previous function, because a run does one thing at a time.
        """
        # In this order, a cancellation from another thread is never missed.
        self._end = end
        if self._event.is_set():
            end()


class Cancellations:
    """The unfinished runs of each visitor, waiting ones included."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Cancellation]] = {}
        self._lock = Lock()  # runs begin and end in threads of their own

    def start(self, visitor: str) -> Cancellation:
        """Register another run of this visitor."""
        run = Cancellation()
        with self._lock:
            self._runs.setdefault(visitor, []).append(run)
        return run

    def end(self, visitor: str, run: Cancellation) -> None:
        """Forget a run that has ended."""
        with self._lock:
            runs = self._runs[visitor]
            runs.remove(run)
            if not runs:
                del self._runs[visitor]

    def cancel(self, visitor: str) -> None:
        """Cancel the visitor's runs."""
        with self._lock:
            runs = list(self._runs.get(visitor, ()))
        for run in runs:
            run.set()

    def cancel_all(self) -> None:
        """Cancel everybody's runs."""
        with self._lock:
            visitors = list(self._runs)
        for visitor in visitors:
            self.cancel(visitor)
