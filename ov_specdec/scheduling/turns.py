"""Threads that read requests take turns at running the scheduler's steps."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Condition, get_ident
from time import monotonic
from typing import Any, TypeVar

from ov_specdec.errors import SessionError
from ov_specdec.scheduling.request import Cancelled, Request
from ov_specdec.scheduling.scheduler import Scheduler

T = TypeVar("T")


class Turns:
    """Gives what requests publish to the threads that read them.

    A reader that finds nobody at work runs steps in its own thread until there is something for it,
    and then leaves the work to others. So no thread runs where nobody reads; for readers that may
    not run steps, such as those of an event loop, a thread calls `run_step`.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._changed = Condition()
        self._worker: int | None = None
        """The thread that uses the models, while one does."""
        self._is_closed = False
        self._submitted: list[Request[Any]] = []
        self._began: float | None = None

    def submit(self, request: Request[T]) -> None:
        """Have a request run together with the others, whenever one of them is read.

        After `close` it ends at once: there may be nobody left who runs steps.
        """
        with self._changed:
            if request.is_submitted:
                return
            request.is_submitted = True
            if not self._is_closed:
                self._submitted.append(request)
                self._changed.notify_all()
                return
        request.end(Cancelled())

    def read(self, request: Request[T]) -> Generator[T, None, None]:
        """The pieces of a request; raises the error that ends it, `Cancelled` for example.

        It is submitted where that was not done before, and cancelled where reading stops.
        """
        self.submit(request)
        try:
            while True:
                self._wait_for_news(request)
                has_ended = request.has_ended  # before the last pieces are taken
                while request.unread:
                    yield request.unread.popleft()
                if has_ended:
                    break
        finally:
            self.cancel(request)
        # Its traceback holds the request, which is not to hold it: together they hold the models.
        error, request.error = request.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error

    def cancel(self, request: Request[T]) -> None:
        """End a request, within one pass where a step is running, else at once."""
        request.cancel()
        with self._changed:
            if self._worker is None:
                self.scheduler.sweep()

    def close(self) -> None:
        """End all requests, and those to come, within one pass."""
        with self._changed:
            self._is_closed = True
            self.scheduler.cancel_all()
            if self._worker is None:
                self.scheduler.sweep()
            self._changed.notify_all()

    @property
    def step_seconds(self) -> float:
        """How long a step is running already; 0 while none is."""
        began = self._began
        return 0.0 if began is None else monotonic() - began

    def run_step(self) -> bool:
        """Wait until a request has something to run, and run one step of all, in this thread.

        An error that is no single request's ends those that were running, and is raised. False
        once it is closed and all requests have ended.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._worker is None and (self._is_closed or self._has_work)
            )
            if not self._has_work:
                return False
            self._take_work()
        try:
            self.scheduler.step()
        except Exception as error:
            self.scheduler.fail_all(error)
            raise
        finally:
            self._leave_work()
        return True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the models from being used by requests; `SessionError` while there are any."""
        with self._changed:
            if self._worker is not None or not self.scheduler.is_idle:
                raise SessionError(
                    "a generation is running on this pipeline: read or close it first"
                )
            self._worker = get_ident()
        try:
            yield
        finally:
            self._leave_work()

    def step(self, is_due: Callable[[], bool] = lambda: False) -> None:
        """Run one step, or wait until whoever runs them leaves, or something is due after one.

        Raises `SessionError` within a step of this thread, which would wait for itself.
        """
        with self._changed:
            if self._worker == get_ident():
                raise SessionError(
                    "a logits processor, or another function that this pipeline calls, cannot have "
                    "it generate meanwhile: use another pipeline there"
                )
            if self._worker is not None:
                self._changed.wait_for(lambda: is_due() or self._worker is None)
                return
            self._take_work()
        try:
            self.scheduler.step()
        finally:
            self._leave_work()

    def _wait_for_news(self, request: Request[T]) -> None:
        while not request.has_news:
            self.step(lambda: request.has_news)

    @property
    def _has_work(self) -> bool:
        return bool(self._submitted) or self.scheduler.has_work

    def _take_work(self) -> None:
        """Begin to work, with what was submitted meanwhile; the lock is held."""
        self._worker, self._began = get_ident(), monotonic()
        for submitted in self._submitted:
            self.scheduler.submit(submitted)
        self._submitted.clear()
        if self._is_closed:  # with one that was being admitted when it was closed
            self.scheduler.cancel_all()

    def _leave_work(self) -> None:
        with self._changed:
            self._worker = self._began = None
            self._changed.notify_all()
