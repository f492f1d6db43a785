"""Static shapes: option values, and compilation during use."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread, get_native_id
from typing import Literal

import openvino as ov
import psutil

from ov_specdec.errors import DeviceError, ModelError, Option, OptionError
from ov_specdec.loading.graph import static_shape
from ov_specdec.runner.static_shape import StaticShape

WantedShapes = Sequence[int] | Literal["auto", "none"]
"""Numbers of tokens in a pass for which a paged main model also gets static shapes.

OpenVINO prepares a dynamic model again for each pass with another number of tokens than the last
one; a static shape, compiled for one number, needs no preparation, and is faster in itself. They
are compiled while the model decodes, and each takes the memory of the weights again. "auto": for
small models, the numbers that save most time in this process, and none on a stateful KV cache,
where numbers are an error. With either, a paged draft model has some too. "none": neither model
has any.
"""

MAX_STATIC_SHAPE = 512

MOST_WEIGHTS = 300 * 2**20
"""Maximum bytes of weights of a model's static shapes, each with as many as the model, plus 15 to
30 MB: two for a model of 135 M parameters, where each saves 0.13 of a pass. For a model of 1 B
parameters it would save 0.03."""

SHARE_OF_FREE = 0.25
"""Maximum fraction of free memory for a static shape."""

COMPILE_OPTIONS = {"SNIPPETS_MODE": "DISABLE"}
"""Properties that disable generated code for element-wise operations: each static shape of the
embedded main model takes 8 MB less, and passes take the same time."""


def check_sizes(given: object) -> WantedShapes:
    """The given value, if it is valid; else raises `OptionError`."""
    if given == "auto" or given == "none":
        return given
    sizes = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if not sizes or not all(type(n) is int and 1 <= n <= MAX_STATIC_SHAPE for n in sizes):
        raise OptionError(
            Option("static_shapes", given),
            f" must be 'auto', 'none', or numbers of tokens from 1 to {MAX_STATIC_SHAPE}",
        )
    return sizes


class ShapeCompiler:
    """Compiles a paged model for static shapes, one at a time. Implements `Compiler`.

    compile_: compiles a graph with the properties of the model. num_bytes: of its weights.
    """

    def __init__(
        self,
        model: ov.Model,
        compile_: Callable[[ov.Model], ov.CompiledModel | DeviceError],
        num_bytes: int,
    ) -> None:
        self._model: ov.Model | None = model
        self._compile = compile_
        self._num_bytes = num_bytes
        self._thread: Thread | None = None
        self._done: StaticShape | DeviceError | None = None

    def has_room(self, num_shapes: int) -> bool:
        """Whether there is memory for another one besides `num_shapes`."""
        most = SHARE_OF_FREE * psutil.virtual_memory().available
        is_small = (num_shapes + 1) * self._num_bytes <= MOST_WEIGHTS
        return self._model is not None and is_small and self._num_bytes <= most

    def start(self, size: int) -> None:
        """Compile for passes over `size` tokens, in a thread with idle priority.

        It is not a daemon, so a short process waits for it at exit: otherwise OpenVINO would crash.
        """
        self._thread = Thread(target=self._run, args=(size,), name="ov-specdec compiles")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the compilation in the background."""
        self._hurry()
        if self._thread is not None:
            self._thread.join()

    def take(self) -> StaticShape | DeviceError | None:
        """The compiled shape once it is done, else None; `DeviceError` if it does not compile."""
        done, self._done = self._done, None
        return done

    def compile(self, size: int) -> StaticShape | DeviceError:
        """Compile in this thread."""
        return self._compile_graph(size, self._graph(size))

    def close(self) -> None:
        """Release the model; a running compilation ends by itself."""
        self._model = None
        self._hurry()

    def _hurry(self) -> None:
        """Give a running compilation the usual priority, since somebody waits for its end."""
        if self._thread is not None and self._thread.is_alive():
            set_policy(self._thread.native_id, "SCHED_OTHER")

    def _run(self, size: int) -> None:
        graph = self._graph(size)  # holds the GIL, so not at idle priority
        set_policy(get_native_id(), "SCHED_IDLE")
        self._done = self._compile_graph(size, graph)

    def _compile_graph(self, size: int, graph: ov.Model | DeviceError) -> StaticShape | DeviceError:
        if isinstance(graph, DeviceError):
            return graph
        compiled = self._compile(graph)
        return compiled if isinstance(compiled, DeviceError) else StaticShape(size, compiled)

    def _graph(self, size: int) -> ov.Model | DeviceError:
        if self._model is None:
            return DeviceError("the model was closed")
        try:
            return static_shape(self._model, size)
        except ModelError as error:
            return DeviceError(str(error))


def set_policy(thread: int | None, policy: Literal["SCHED_IDLE", "SCHED_OTHER"]) -> None:
    """Give a thread a scheduling policy, on Linux if permitted.

    Compilation takes one thread. At idle priority it did not slow down decoding, which at nice 19
    was 15 to 35 % slower. While decoding uses both cores, it takes five to ten times as long.
    """
    if thread is not None and hasattr(os, "sched_setscheduler"):
        with suppress(OSError):  # not permitted in some containers, or the thread has ended
            os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(0))
