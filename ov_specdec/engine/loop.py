"""`EngineLoop`, who steps an engine: threads that read sequences, in turns, or one of its own."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Condition, Thread, get_ident
from time import monotonic
from typing import Any

from ov_specdec.engine.engine import Engine
from ov_specdec.engine.sequence import Cancelled, Sequence
from ov_specdec.errors import SessionError


class EngineLoop:
    """Gives what sequences publish to the threads that read them.

    A reader that finds nobody at work steps in its own thread until there is something for it, and
    then leaves the work to others. So no thread runs where nobody reads; for readers that may not
    step, such as those of an event loop, `start` has a thread do it.

    One lock (`_changed`) protects who works, what was added, and whether the loop is closed. The
    engine and its sequences belong to whoever works; others only cancel, and take what is unread.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._changed = Condition()
        self._worker: int | None = None
        """The thread that uses the models, while one does."""
        self._is_closed = False
        self._added: list[Sequence] = []
        self._began: float | None = None
        self._thread: Thread | None = None

    def add(self, sequence: Sequence) -> None:
        """Have a sequence run together with the others, whenever one of them is read.

        After `close` it ends at once: there may be nobody left who steps.
        """
        with self._changed:
            if sequence.is_added:
                return
            sequence.is_added = True
            if not self._is_closed:
                self._added.append(sequence)
                self._changed.notify_all()
                return
        sequence.end(Cancelled())

    def read(self, sequence: Sequence) -> Generator[Any, None, None]:
        """What a sequence publishes; raises the error that ends it, `Cancelled` for example.

        It is added where that was not done before, and cancelled where reading stops.
        """
        self.add(sequence)
        try:
            while True:
                while not sequence.has_news:
                    self.step(lambda: sequence.has_news)
                has_ended = sequence.has_ended  # before the last pieces are taken
                while sequence.unread:
                    yield sequence.unread.popleft()
                if has_ended:
                    break
        finally:
            self.cancel(sequence)
        # Its traceback holds the sequence, which is not to hold it: together they hold the models.
        error, sequence.error = sequence.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error

    def step(self, is_due: Callable[[], bool] = lambda: False) -> None:
        """Run one step, or wait until whoever steps leaves, or something is due after a step.

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
            self.engine.step()
        finally:
            self._leave_work()

    def start(self, on_error: Callable[[Exception], None]) -> None:
        """Have a thread step while there are sequences, and sleep where there are none.

        on_error: told of an error that is no single sequence's, which ends those that were running;
        the thread goes on.
        """
        self._thread = Thread(
            target=self._work, args=(on_error,), name="ov-specdec steps", daemon=True
        )
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait, after `close`, until its thread's last step has ended, for so many seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def step_seconds(self) -> float:
        """How long a step is running already; 0 while none is."""
        began = self._began
        return 0.0 if began is None else monotonic() - began

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence, within one pass where a step is running, else at once."""
        sequence.cancel()
        with self._changed:
            if self._worker is None:
                self.engine.scheduler.sweep()

    def close(self) -> None:
        """End all sequences, and those to come, within one pass."""
        with self._changed:
            self._is_closed = True
            self.engine.cancel_all()
            if self._worker is None:
                self.engine.scheduler.sweep()
            self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the models from being used by sequences; `SessionError` while there are any."""
        with self._changed:
            if self._worker is not None or self.engine.scheduler.running:
                raise SessionError(
                    "a generation is running on this pipeline: read or close it first"
                )
            self._worker = get_ident()
        try:
            yield
        finally:
            self._leave_work()

    def _work(self, on_error: Callable[[Exception], None]) -> None:
        while self._wait_for_work():
            self._step(on_error)

    def _step(self, on_error: Callable[[Exception], None]) -> None:
        try:
            self.engine.step()
        except Exception as error:
            self.engine.fail_all(error)
            on_error(error)
        finally:
            self._leave_work()

    def _wait_for_work(self) -> bool:
        """Begin to work once there is something; False once it is closed and all have ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._worker is None and (self._is_closed or self._has_work)
            )
            if not self._has_work:
                return False
            self._take_work()
        return True

    @property
    def _has_work(self) -> bool:
        return bool(self._added) or self.engine.scheduler.has_work

    def _take_work(self) -> None:
        """Begin to work, with what was added meanwhile; the lock is held."""
        self._worker, self._began = get_ident(), monotonic()
        for sequence in self._added:
            self.engine.add_request(sequence)
        self._added.clear()
        if self._is_closed:  # with one that was being admitted when it was closed
            self.engine.cancel_all()

    def _leave_work(self) -> None:
        with self._changed:
            self._worker = self._began = None
            self._changed.notify_all()
