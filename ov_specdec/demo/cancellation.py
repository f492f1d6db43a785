"""Cancels one run."""

from collections.abc import Callable
from threading import Event


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
