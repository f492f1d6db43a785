"""The time that a search may take, without what loading takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Budget:
    """Seconds for measuring, counted from now on; loading and compiling models is counted apart."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.loading = 0.0
        """Seconds that loading has taken."""
        self._start = perf_counter()

    @property
    def spent(self) -> float:
        """Seconds so far, without loading."""
        return perf_counter() - self._start - self.loading

    @property
    def left(self) -> float:
        """Seconds that may still be spent; below 0 once there are none."""
        return self.seconds - self.spent

    @contextmanager
    def load(self) -> Iterator[None]:
        """While models are loaded."""
        start = perf_counter()
        try:
            yield
        finally:
            self.loading += perf_counter() - start
