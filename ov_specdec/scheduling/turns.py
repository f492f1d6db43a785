"""Threads that read requests take turns at running the scheduler's steps."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any, TypeVar

from ov_specdec.errors import SessionError
from ov_specdec.scheduling.request import Request
from ov_specdec.scheduling.scheduler import Scheduler

T = TypeVar("T")


class Turns:
    """Gives what requests publish to the threads that read them.

    A reader that finds nobody at work runs steps in its own thread until there is something for it,
    and then leaves the work to others. So no thread runs where nobody reads.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._changed = Condition()
        self._is_working = False
        self._is_closed = False
        self._submitted: list[Request[Any]] = []

    def submit(self, request: Request[T]) -> None:
        """Have a request run together with the others, whenever one of them is read."""
        with self._changed:
            if not request.is_submitted:
                request.is_submitted = True
                self._submitted.append(request)

    def read(self, request: Request[T]) -> Generator[T, None, None]:
        """The pieces of a request; raises the error that ends it, `Cancelled` for example.

        It is submitted where that was not done before, and cancelled where reading stops.
        """
        self.submit(request)
        try:
            while True:
                self._wait_for_news(request)
                while request.unread:
                    yield request.unread.popleft()
                if request.has_ended:
                    break
        finally:
            self.cancel(request)
        if request.error is not None:
            raise request.error

    def cancel(self, request: Request[T]) -> None:
        """End a request, within one pass where a step is running, else at once."""
        request.cancel()
        with self._changed:
            if not self._is_working:
                self._scheduler.sweep()

    def close(self) -> None:
        """End all requests, and those to come, within one pass."""
        with self._changed:
            self._is_closed = True
            self._scheduler.cancel_all()
            if not self._is_working:
                self._scheduler.sweep()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the models from being used by requests; `SessionError` while there are any."""
        with self._changed:
            if self._is_working or not self._scheduler.is_idle:
                raise SessionError(
                    "a generation is running on this pipeline: read or close it first"
                )
            self._is_working = True
        try:
            yield
        finally:
            self._leave_work()

    def step(self, is_due: Callable[[], bool] = lambda: False) -> None:
        """Run one step, or wait until whoever runs them leaves, or something is due after one."""
        with self._changed:
            if self._is_working:
                self._changed.wait_for(lambda: is_due() or not self._is_working)
                return
            self._is_working = True
            for submitted in self._submitted:
                submitted.is_cancelled |= self._is_closed
                self._scheduler.submit(submitted)
            self._submitted.clear()
        try:
            self._scheduler.step()
        finally:
            self._leave_work()

    def _wait_for_news(self, request: Request[T]) -> None:
        while not request.has_news:
            self.step(lambda: request.has_news)

    def _leave_work(self) -> None:
        with self._changed:
            self._is_working = False
            self._changed.notify_all()
