"""`EngineLoop`: steps an engine, in the threads that read sequences or in one of its own."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from threading import Condition, Thread, get_ident, main_thread
from time import monotonic
from typing import Any, Protocol
from weakref import ReferenceType, ref

import psutil

from ov_specdec.engine.engine import Engine
from ov_specdec.engine.sequence import Cancelled, Sequence, State
from ov_specdec.errors import SessionError

IDLE, BUSY = 0.5, 30.0
"""Seconds without sequences before idle work, on a quiet machine and on a busy one. It delays no
process that ends after its answer or generates again at once; and of two pipelines in turn, each
worked while the other generated, which had a third of its speed."""

QUIET = 25.0
"""Per cent of the processor's time: on a quiet machine, less is in use."""


class IdleWork(Protocol):
    """What is done between requests."""

    @property
    def is_pending(self) -> bool:
        """Whether something is to be done."""

    def passes(self) -> Generator[Any, None, None]:
        """Run a pass at each `next`, or one of each model.

        It is closed as soon as there is something else to do, and called again afterwards.
        """


class EngineLoop:
    """Passes the output of sequences to the threads that read them.

    If no thread is stepping, a reader steps in its own thread until its sequence has output, and
    then another reader may step. Without readers nothing runs. For readers that must not step, such
    as those of an event loop, `start` starts a thread for steps. idle_work: to be done between
    sequences, in a thread of its own.

    One lock (`_changed`) protects which thread steps, the queue, and whether the loop is closed.
    The engine and its sequences belong to the stepping thread; others only cancel, and read output.
    """

    def __init__(self, engine: Engine, idle_work: Iterable[IdleWork] = ()) -> None:
        self.engine = engine
        self._idle_work = [*idle_work]
        self._idle_thread: Thread | None = None
        self._changed = Condition()
        self._worker: int | None = None
        """The thread that uses the models; None while none does."""
        self._is_closed = False
        self._num_asking = 0
        """Threads that wait for the models."""
        self._added: list[Sequence] = []
        self._began: float | None = None
        self._left = 0.0
        """When the models were last in use, by `time.monotonic`, as is `_began`."""
        self._thread: Thread | None = None

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; it runs with the others whenever one of them is read.

        After `close` it ends at once, since no thread may step any more.
        """
        with self._changed:
            if sequence.state is not State.NEW:
                return
            sequence.state = State.WAITING
            if not self._is_closed:
                self._added.append(sequence)
                self._changed.notify_all()
                return
        sequence.end(Cancelled())

    def read(self, sequence: Sequence) -> Generator[Any, None, None]:
        """The output of a sequence; raises the error that ends it, unless it was cancelled.

        Adds the sequence if needed, and cancels it if the reader stops.
        """
        self.add(sequence)
        try:
            while sequence.state is not State.ENDED or sequence.output.unread:
                if sequence.output.unread:
                    yield sequence.output.unread.popleft()
                else:
                    self.step(lambda: bool(sequence.output.unread) or sequence.has_ended)
        finally:
            self.cancel(sequence)
        # Break the cycle of error, traceback and sequence, which would keep the models alive.
        error, sequence.error = sequence.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error

    def step(self, is_due: Callable[[], bool] = lambda: False) -> None:
        """Run one step, or wait while another thread steps, at most until `is_due` returns True.

        Raises `SessionError` within a step of this thread, which would wait for itself.
        """
        with self._changed:
            if self._worker == get_ident():
                raise SessionError(
                    "a logits processor, or another function that this pipeline calls, cannot "
                    "generate with the same pipeline: use another pipeline there"
                )
            if self._worker is not None:
                self._wait(lambda: is_due() or self._worker is None)
                return
            self._take_work()
        try:
            self.engine.step()
        finally:
            self._leave_work()

    def start(self, on_error: Callable[[Exception], None]) -> None:
        """Start a thread that steps while there are sequences, and sleeps otherwise.

        on_error: called with an error that concerns no single sequence. It ends the running ones;
        the thread continues.
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
        """After `close`, wait up to `timeout` seconds for the last step of the thread."""
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def num_waiting(self) -> tuple[int, int]:
        """Waiting sequences: new ones, and those that were preempted. From any thread."""
        waiting = list(self.engine.scheduler.waiting)
        num_preempted = sum(sequence.output.begun is not None for sequence in waiting)
        return len(self._added) + len(waiting) - num_preempted, num_preempted

    @property
    def step_seconds(self) -> float:
        """Seconds since the current step began; 0 if none is running."""
        began = self._began
        return 0.0 if began is None else monotonic() - began

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence, within one pass if a step is running, else at once."""
        sequence.cancel()
        with self._changed:
            if self._worker is None:
                self.engine.scheduler.sweep()

    def close(self) -> None:
        """End all present and future sequences within one pass."""
        with self._changed:
            self._is_closed = True
            self.engine.cancel_all()
            if self._worker is None:
                self.engine.scheduler.sweep()
            self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Reserve the models for the caller; `SessionError` while there are sequences.

        Waits while another thread uses them.
        """
        with self._changed:
            if self._worker != get_ident():
                self._wait(lambda: self._worker is None)
            if self._worker is not None or self.engine.scheduler.running:
                raise SessionError(
                    "a generation is running on this pipeline: read it to its end, or close it"
                )
            self._worker = get_ident()
        try:
            yield
        finally:
            self._leave_work()

    def _wait(self, until: Callable[[], bool]) -> None:
        """Wait for the models; idle work ends meanwhile. The caller holds the lock."""
        self._num_asking += 1
        try:
            self._changed.wait_for(until)
        finally:
            self._num_asking -= 1
            self._changed.notify_all()

    def _work(self, on_error: Callable[[Exception], None]) -> None:
        """Run steps while there are sequences, until it is closed and all have ended."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._worker is None and (self._is_closed or self._has_work)
                )
                if not self._has_work:
                    return
                self._take_work()
            try:
                self.engine.step()
            except Exception as error:
                self.engine.fail_all(error)
                on_error(error)
            finally:
                self._leave_work()

    @property
    def _has_work(self) -> bool:
        scheduler = self.engine.scheduler
        return bool(self._added or scheduler.running or scheduler.waiting)

    def _take_work(self) -> None:
        """Start stepping with the queued sequences. The caller holds the lock."""
        self._worker, self._began = get_ident(), monotonic()
        for sequence in self._added:
            self.engine.scheduler.waiting.add(sequence)
        self._added.clear()
        if self._is_closed:  # a sequence may have been admitted while it was closed
            self.engine.cancel_all()

    def _leave_work(self) -> None:
        with self._changed:
            self._worker = self._began = None
            self._left = monotonic()
            self.engine.scheduler.sweep()  # cancelled after the last step
            self._changed.notify_all()
            if self._idle_thread is not None or not self._is_idle:
                return
            if any(work.is_pending for work in self._idle_work):
                # Not a daemon, even if this thread is: OpenVINO would crash at exit.
                self._idle_thread = Thread(
                    target=_pause, args=(ref(self),), name="ov-specdec idle", daemon=False
                )
                self._idle_thread.start()

    @property
    def _is_idle(self) -> bool:
        """Whether there are no sequences, and the process goes on."""
        return not (self._is_closed or self._has_work) and main_thread().is_alive()

    def _idle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._num_asking)
            self._idle_thread = None
            work = next((each for each in self._idle_work if each.is_pending), None)
            if work is None or self._worker is not None or not self._is_idle:
                return  # another thread begins afterwards
            self._worker = get_ident()
            self._idle_work.remove(work)
        try:
            with closing(work.passes()) as passes:
                for _ in passes:
                    if self._num_asking or not self._is_idle:
                        break
            self._idle_work.insert(0, work)  # an error ends it
        finally:
            self._leave_work()


def _pause(reference: ReferenceType[EngineLoop]) -> None:
    """Let a loop do idle work once nothing has come for a while, without keeping it alive."""
    psutil.cpu_percent()  # the next call says what was in use since
    while (loop := reference()) and loop._is_idle:
        rested = monotonic() - loop._left
        if rested >= IDLE and (rested >= BUSY or psutil.cpu_percent() < QUIET):
            break
        del loop
        main_thread().join(IDLE - rested if rested < IDLE else IDLE)  # at its end at once
    if loop is not None:
        loop._idle()
