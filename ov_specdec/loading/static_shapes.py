"""For which numbers of tokens a model is compiled once more, and how that is done in use."""

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

StaticShapes = Sequence[int] | Literal["auto", "none"]
"""Numbers of tokens in a pass for which a paged main model is compiled once more.

OpenVINO prepares a model anew for each pass with another number of tokens than the last one had;
a static shape, compiled for that number, has nothing to prepare, and is faster by itself. They are
compiled while the model decodes, and take memory: the model's weights once more for each. "auto"
takes those that save most time in this process, where their weights are small, and none on a
stateful KV cache, where numbers are an error. With either, a paged draft model has some too.
"none": neither model has any.
"""

MAX_STATIC_SHAPE = 512

MOST_WEIGHTS = 300 * 2**20
"""Bytes of weights that the static shapes of a model may take, each of them as many as the model,
and 15 to 30 MB beside: two of a model of 135 M parameters, where a pass is 0.13 shorter by one. Of
a model of 1 B parameters it would be 0.03."""

SHARE_OF_FREE = 0.25
"""Part of the free memory that a static shape may take."""

COMPILE_OPTIONS = {"SNIPPETS_MODE": "DISABLE"}
"""Without code of their own for each group of element-wise operations, static shapes take 8 MB less
each of the embedded main, and passes as long."""


def check_sizes(given: object) -> StaticShapes:
    """What was given, if it is of that kind; else raises `OptionError`."""
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
        """Whether there is memory for one beside so many: the model is small, and much is free."""
        most = SHARE_OF_FREE * psutil.virtual_memory().available
        is_small = (num_shapes + 1) * self._num_bytes <= MOST_WEIGHTS
        return self._model is not None and is_small and self._num_bytes <= most

    def start(self, size: int) -> None:
        """Begin to compile for passes over so many tokens, in a thread that takes idle time.

        That a short process waits for it when it ends is why it is no daemon: OpenVINO would
        crash.
        """
        self._thread = Thread(target=self._run, args=(size,), name="ov-specdec compiles")
        self._thread.start()

    def wait(self) -> None:
        """Wait for what was begun."""
        if self._thread is not None:
            self._thread.join()

    def take(self) -> StaticShape | DeviceError | None:
        """What was begun, once it is done; `DeviceError` where it does not compile."""
        done, self._done = self._done, None
        return done

    def compile(self, size: int) -> StaticShape | DeviceError:
        """Compile in this thread."""
        return self._compile_graph(size, self._graph(size))

    def close(self) -> None:
        """Let go of the model; what was begun ends by itself."""
        self._model = None

    def _run(self, size: int) -> None:
        graph = self._graph(size)  # under Python's lock, which must not be held in idle time
        lower_priority()
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


def lower_priority() -> None:
    """Have this thread run where no other one wants to: on Linux, where that is allowed.

    Compiling takes one thread. Decoding beside it was not slower than alone, where it was by 15 to
    35 % with the least priority of the usual kind (nice 19); it takes five to ten times as long
    where decoding has both cores.
    """
    if hasattr(os, "SCHED_IDLE"):
        with suppress(PermissionError):  # as in some containers: it is only slower for others
            os.sched_setscheduler(get_native_id(), os.SCHED_IDLE, os.sched_param(0))
