"""Each visitor's wish to stop, which ends no one else's run."""

from threading import Event


class Stops:
    """A flag per visitor, raised by a click and looked at between rounds."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}

    def arm(self, visitor: str) -> None:
        """Forget earlier wishes: a new run is asked for."""
        self._events[visitor] = Event()

    def stop(self, visitor: str) -> None:
        """End the visitor's run after its round, or before it begins."""
        if visitor in self._events:
            self._events[visitor].set()

    def leave(self, visitor: str) -> None:
        """The visitor has gone: end the run and forget the visitor."""
        self.stop(visitor)
        self._events.pop(visitor, None)

    def watch(self, visitor: str) -> Event:
        """The flag of the visitor's newest run."""
        return self._events.setdefault(visitor, Event())
