"""A thread that runs the scheduler's steps."""

from collections.abc import Callable
from threading import Thread

from ov_specdec.scheduling.turns import Turns


class Worker:
    """Runs steps in a thread of its own while there are requests, and sleeps where there are none.

    on_error: told of an error that is no single request's; the thread goes on.
    """

    def __init__(self, turns: Turns, on_error: Callable[[Exception], None]) -> None:
        self._turns = turns
        self._on_error = on_error
        self._thread = Thread(target=self._work, name="ov-specdec steps", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait, after `Turns.close`, until the last step has ended, for so many seconds at most."""
        self._thread.join(timeout)

    def _work(self) -> None:
        while self._run_step():
            pass

    def _run_step(self) -> bool:
        try:
            return self._turns.run_step()
        except Exception as error:
            self._on_error(error)
            return True
