"""Chooses static shapes for a model by the sizes of its passes, and has them compiled."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Protocol

from ov_specdec.errors import CacheFullError, DeviceError, SessionError
from ov_specdec.planning.costs import GRID, SIZES, Costs, Progress, Role
from ov_specdec.planning.static_sizes import most_saving
from ov_specdec.runner.static_shape import ShapedRunner, StaticShape
from ov_specdec.static_trial import try_out

SECONDS = 2.0
"""Seconds of decoding before each choice of a static shape: short processes pay nothing."""

MOST = 2
"""Maximum static shapes of passes over one sequence, and as many of larger ones. Embedded pair,
speedup over dynamic shapes with the default draft length and plain: 1.22 and 1.28 with one shape
(8), 1.29 and 1.55 with two (2, 8), 1.31 and 1.57 with four (2, 4, 8, 16). Each takes 40 MB."""

WORTH = 0.04
"""Minimum fraction of the time of passes that a static shape must save."""


class Compiler(Protocol):
    """Compiles a model for static shapes, one at a time."""

    def has_room(self, num_shapes: int) -> bool:
        """Whether there is memory for another one besides `num_shapes`."""
        ...

    def start(self, size: int) -> None:
        """Compile one in the background."""
        ...

    def wait(self) -> None:
        """Wait for the compilation in the background, if there is one."""
        ...

    def take(self) -> StaticShape | DeviceError | None:
        """The compiled shape once it is done, else None; `DeviceError` if it does not compile."""
        ...

    def compile(self, size: int) -> StaticShape | DeviceError:
        """Compile one in this thread."""
        ...

    def close(self) -> None:
        """Release the model."""
        ...


class StaticShapes:
    """The static shapes of one model.

    role: the model's name in the cost curve. wanted: the sizes; None takes those that save most.
    usual: initial counts of steps by size. can_swap: whether a shape may replace another one
    during a generation without changing its text; else it waits until none is running.
    """

    def __init__(
        self,
        role: Role,
        runner: ShapedRunner,
        compiler: Compiler,
        costs: Costs,
        *,
        usual: Mapping[int, float],
        wanted: tuple[int, ...] | None,
        can_swap: Callable[[], bool],
    ) -> None:
        # Passes by their number of tokens without padding to cheaper sizes.
        self._demand = defaultdict(float, usual)
        self._role: Role = role
        self._runner = runner
        self._compiler = compiler
        self._costs = costs
        self._wanted: tuple[int, ...] | None = wanted
        self._can_swap = can_swap
        self._due = SECONDS if wanted is None else 0.0
        self._compiling = 0
        self._postponed: StaticShape | None = None
        """A compiled shape for whose trial the KV cache had no room."""
        self._saved: list[float] = []
        self._refused: set[int] = set()

    def count(self, num_tokens: int) -> None:
        """Count a pass by its number of tokens without padding to cheaper sizes."""
        self._demand[num_tokens] += 1.0

    def update(self, seconds: float, *, is_idle: bool) -> None:
        """Between two steps: use a compiled shape, and start to compile the next one.

        seconds: of the last step. is_idle: no sequence is running.
        """
        if self._compiling and self._postponed is None:
            if is_idle or self._can_swap():
                self._use(self._compiler.take())
            return
        self._due -= seconds
        if self._due > 0.0:
            return
        if self._postponed is not None:
            if is_idle or self._can_swap():
                self._use(self._postponed)
        elif size := self._next():
            self._compiling = size
            self._compiler.start(size)

    def complete(self, progress: Progress | None = None) -> None:
        """Compile all that pay; no sequence may run. progress: called with the share done."""
        self._compiler.wait()
        self._use(self._postponed or self._compiler.take())
        most = len(self._wanted) if self._wanted else MOST
        done = 0
        while self._postponed is None and (size := self._next()):
            if progress is not None:
                progress(min(done / most, 1.0))
            self._compiling = size
            self._use(self._compiler.compile(size))
            done += 1

    def close(self) -> None:
        """Stop compiling."""
        self._wanted = ()
        self._compiler.close()

    def _next(self) -> int:
        """The size to compile next; 0 for none."""
        self._due = SECONDS
        static = self._runner.static_shapes | self._refused
        least = 2 if self._runner.is_invariant else 1  # a single token is padded to two
        if self._wanted is not None:
            wanted = (max(size, least) for size in self._wanted)
            return next((size for size in wanted if size not in static), 0)
        if not self._compiler.has_room(len(self._runner.static_shapes - {1})):
            return 0
        curve = getattr(self._costs.curve, self._role)
        best, share = 0, WORTH
        for sizes in (SIZES, GRID[len(SIZES) :]):
            allowed = [size for size in sizes if size >= least and size not in self._refused]
            if curve is None or len(static & set(allowed)) >= MOST:
                continue
            size, saved = most_saving(self._demand, curve, allowed)
            if saved >= share:
                best, share = size, saved
        for size in self._demand:
            self._demand[size] /= 2
        return best

    def _use(self, shape: StaticShape | DeviceError | None) -> None:
        """Use a static shape if its logits are right; otherwise warn."""
        if shape is None:
            return
        size, self._compiling, self._postponed = self._compiling, 0, None
        if isinstance(shape, DeviceError):
            self._refuse(size, str(shape))
            return
        try:
            trial = try_out(self._runner, shape)
        except CacheFullError:
            self._compiling, self._postponed, self._due = size, shape, SECONDS
            return
        except (SessionError, RuntimeError) as error:  # no room in memory or context, or OpenVINO's
            self._refuse(size, str(error))
            return
        if not trial.is_right:
            self._refuse(size, "its logits differ from the dynamic model's")
            return
        self._saved.append(trial.seconds_saved)
        self._costs.set_static(self._role, self._runner.static_shapes, median(self._saved))

    def _refuse(self, size: int, reason: str) -> None:
        self._refused.add(size)
        message = f"no static shape for {size} tokens is used: {reason}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
