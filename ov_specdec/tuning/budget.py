"""The time budget of a search, without model loading."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Budget:
    """Seconds for measurements from now on; time to load and compile models does not count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.loading = 0.0
        """Seconds spent on loading."""
        self._start = perf_counter()

    @property
    def spent(self) -> float:
        """Seconds so far, without loading."""
        return perf_counter() - self._start - self.loading

    @property
    def left(self) -> float:
        """Seconds left; negative once the budget is exceeded."""
        return self.seconds - self.spent

    @contextmanager
    def load(self) -> Iterator[None]:
        """Exclude the time within this context from the budget."""
        start = perf_counter()
        try:
            yield
        finally:
            self.loading += perf_counter() - start
