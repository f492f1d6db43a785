"""Static shapes: a model compiled for one number of tokens in a pass, and which ones pay."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Thread, get_native_id
from typing import Any, Literal

import psutil

from ov_specdec.errors import CacheFullError
from ov_specdec.planning.costs import GRID, Progress
from ov_specdec.planning.plan import MAX_PLANNED_LENGTH
from ov_specdec.results.stats import PassStats
from ov_specdec.runner.paged import PagedModel
from ov_specdec.runner.probe import NUM_CACHED, try_static

SECONDS = 2.0
"""Seconds of decoding before each choice of a static shape: short processes pay nothing."""

MAX_SHAPES = 2
"""Maximum static shapes of passes over one sequence, and as many of larger ones. Embedded pair,
speedup over dynamic shapes with the default draft length and plain: 1.22 and 1.28 with one shape
(8), 1.29 and 1.55 with two (2, 8), 1.31 and 1.57 with four (2, 4, 8, 16). Each takes 40 MB."""

LEAST_SHARE = 0.1
"""Minimum fraction of recent passes that have the size of a new static shape."""

MOST_WEIGHTS = 300 * 2**20
"""Maximum bytes of weights of a model's static shapes, each with as many as the model, plus 15 to
30 MB: two for a model of 135 M parameters, where each saves 0.13 of a pass. For a model of 1 B
parameters it would save 0.03."""

SHARE_OF_FREE = 0.25
"""Maximum fraction of free memory for a static shape."""

Compile = Callable[[int], Callable[[], Any]]
"""Makes the graph for a number of tokens, under the GIL, and returns what compiles it."""


class StaticShapes:
    """The static shapes of one model: chosen by the sizes of its passes, and compiled meanwhile.

    num_bytes: of its weights. usual: initial counts of passes by size. sizes: None takes those
    wanted most. can_swap: whether a shape may replace another one during a generation without
    changing its text; else it waits until none is running.
    """

    def __init__(
        self,
        runner: PagedModel,
        compile_: Compile,
        num_bytes: int,
        *,
        usual: Mapping[int, int],
        sizes: tuple[int, ...] | None,
        can_swap: Callable[[], bool],
    ) -> None:
        self._runner, self._compile, self._num_bytes = runner, compile_, num_bytes
        self._sizes, self._can_swap = sizes, can_swap
        self._demand = Counter[int](usual)
        """Recent passes by their wanted size, or the next one of `GRID`."""
        self._due = SECONDS if sizes is None else 0.0
        self._thread: Thread | None = None
        self._is_awaited = False
        self._compiled: tuple[int, Any] | None = None
        """A size and its model, or why there is none, until it is in use. It stays while the KV
        cache has no room for a trial."""
        self._refused: set[int] = set()

    def learn(
        self, passes: Iterable[PassStats], wanted: int, seconds: float, *, is_idle: bool
    ) -> None:
        """Between two steps: use a compiled shape, and start to compile the next one.

        passes: of the model in the last step. wanted: the size that would have been best; 0: those
        of passes without prefill. seconds: of that step. is_idle: no sequence is running.
        """
        used = [done.num_tokens for done in passes if not done.num_prefill]
        for size in [wanted] if wanted else used:
            needed = max(size, self._least)
            self._demand[next((size for size in GRID if size >= needed), needed)] += 1
        if self._thread is not None and self._thread.is_alive():
            return
        self._due -= seconds
        if self._due > 0.0:
            return
        if self._compiled is not None:
            if is_idle or self._can_swap():
                self._use()
        elif size := self._next():
            self._start(size)

    def complete(self, progress: Progress | None = None) -> None:
        """Compile all that pay; no sequence may run. progress: called with the share done."""
        most, done = len(self._sizes or range(MAX_SHAPES)), 0
        self._hurry()
        while True:
            if self._thread is not None:
                self._thread.join()
            self._use()
            if self._compiled is not None or not (size := self._next()):
                break
            if progress is not None:
                progress(min(done / most, 1.0))
            self._start(size)
            done += 1
        self._is_awaited = False

    def close(self) -> None:
        """Compile no more; a running compilation ends by itself."""
        self._sizes = ()
        self._hurry()

    def _start(self, size: int) -> None:
        """Compile for passes over `size` tokens, in a thread with idle priority.

        It is not a daemon, even if the present thread is: OpenVINO would crash at exit.
        """
        self._due, name = 0.0, "ov-specdec compiles"
        self._thread = Thread(target=self._run, args=(size,), name=name, daemon=False)
        self._thread.start()

    def _run(self, size: int) -> None:
        try:
            compiling = self._compile(size)  # holds the GIL, so not at idle priority
            set_policy(get_native_id(), "SCHED_IDLE")
            if self._is_awaited:
                self._hurry()
            self._compiled = size, compiling()
        except Exception as error:
            self._compiled = size, error

    def _hurry(self) -> None:
        """Give a running compilation the usual priority, since somebody waits for its end."""
        self._is_awaited = True
        if self._thread is not None and self._thread.is_alive():
            set_policy(self._thread.native_id, "SCHED_OTHER")

    @property
    def _least(self) -> int:
        """The smallest size: a single token may be padded to two."""
        return 2 if self._runner.is_invariant else 1

    def _next(self) -> int:
        """The size to compile next; 0 for none."""
        self._due, least = SECONDS, self._least
        known = self._runner.static_shapes | self._refused
        if self._sizes is not None:
            given = (max(size, least) for size in self._sizes)
            return next((size for size in given if size not in known), 0)
        if not self._has_room():
            return 0
        common, least_often = self._demand.most_common(), LEAST_SHARE * self._demand.total()
        self._demand = Counter({size: number // 2 for size, number in common})
        most = self._runner.max_length - NUM_CACHED  # others would have no room for their trial
        of_one = MAX_PLANNED_LENGTH + 1  # the largest planned pass over one sequence
        for first, last in ((least, min(of_one, most)), (of_one + 1, min(GRID[-1], most))):
            own = range(first, last + 1)
            usual = (s for s, number in common if number >= least_often and s in own)
            if sum(size in own for size in known) < MAX_SHAPES:
                if size := next((s for s in usual if s not in known), 0):
                    return size
        return 0

    def _has_room(self) -> bool:
        num_shapes = len(self._runner.static_shapes - {1}) + 1
        most = SHARE_OF_FREE * psutil.virtual_memory().available
        return num_shapes * self._num_bytes <= MOST_WEIGHTS and self._num_bytes <= most

    def _use(self) -> None:
        """Use a compiled shape if its logits are right; otherwise warn."""
        if self._compiled is None:
            return
        (size, compiled), self._due = self._compiled, SECONDS
        reason = "its logits differ from the dynamic model's"
        try:
            if isinstance(compiled, Exception):
                raise compiled
            if try_static(self._runner, size, compiled):
                reason = ""
        except CacheFullError:
            return
        except Exception as error:  # no room, for example
            reason = str(error)
        self._compiled = None
        if reason:
            self._refused.add(size)
            message = f"no static shape for {size} tokens is used: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def set_policy(thread: int | None, policy: Literal["SCHED_IDLE", "SCHED_OTHER"]) -> None:
    """Give a thread a scheduling policy, on Linux if permitted.

    Compilation takes one thread. At idle priority it did not slow down decoding, which at nice 19
    was 15 to 35 % slower. While decoding uses both cores, it takes five to ten times as long.
    """
    if thread is not None and hasattr(os, "sched_setscheduler"):
        with suppress(OSError):  # not permitted in some containers, or the thread has ended
            os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(0))
