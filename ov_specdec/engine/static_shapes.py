"""Has a model compiled for the sizes that its passes have most, while it goes on decoding."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import mean
from typing import Protocol

from ov_specdec.errors import DeviceError, SessionError
from ov_specdec.planning.costs import GRID, SIZES, Costs, Progress, Role
from ov_specdec.planning.static_sizes import most_saving
from ov_specdec.runner.static_shape import ShapedRunner, StaticShape
from ov_specdec.static_trial import try_out

SECONDS = 2.0
"""Of decoding before the first static shape is compiled, and until it is asked which one is next:
short processes pay nothing."""

MOST = 2
"""Static shapes of passes over one sequence, and as many of larger ones. Embedded pair, of the
speed without any, default draft length and plain: 1.22 and 1.28 with one (8), 1.29 and 1.55 with
two (2, 8), 1.31 and 1.57 with four (2, 4, 8, 16). Each of the main model's takes 40 MB."""

WORTH = 0.04
"""Part of the passes' time that a static shape has to save."""


class Compiler(Protocol):
    """Compiles a model for static shapes, one at a time."""

    def has_room(self, num_shapes: int) -> bool:
        """Whether there is memory for one beside so many."""
        ...

    def start(self, size: int) -> None:
        """Begin with one in the background."""
        ...

    def wait(self) -> None:
        """Wait until that is done, at once where none was begun."""
        ...

    def take(self) -> StaticShape | DeviceError | None:
        """What was begun, once it is done; `DeviceError` where it does not compile."""
        ...

    def compile(self, size: int) -> StaticShape | DeviceError:
        """The same in this thread."""
        ...

    def close(self) -> None:
        """Let go of the model."""
        ...


class StaticShapes:
    """The static shapes of one model.

    role: whose passes they are in the cost curve. wanted: the sizes; None takes those that save
    most. usual: steps by size, until there are others. can_swap: whether texts stay the same when
    one is taken up in the middle of them; else they are taken up while none is running.
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
        # Passes by the tokens that they would have if all sizes cost alike.
        self._demand = defaultdict(float, usual)
        self._role: Role = role
        self._runner = runner
        self._compiler = compiler
        self._costs = costs
        self._wanted: tuple[int, ...] | None = wanted
        self._can_swap = can_swap
        self._due = SECONDS if wanted is None else 0.0
        self._compiling = 0
        self._saved: list[float] = []
        self._refused: set[int] = set()

    def count(self, num_tokens: int) -> None:
        """Take note of a pass, by the tokens that it would have if all sizes cost alike."""
        self._demand[num_tokens] += 1.0

    def update(self, seconds: float, *, is_idle: bool) -> None:
        """Between two steps: take up what was compiled, and begin with the next one.

        seconds: of the last step. is_idle: no sequence is running.
        """
        if self._compiling:
            if is_idle or self._can_swap():
                self._take_up(self._compiler.take())
            return
        self._due -= seconds
        if self._due <= 0.0 and (size := self._next()):
            self._compiling = size
            self._compiler.start(size)

    def complete(self, progress: Progress | None = None) -> None:
        """Have all that are worth it; no sequence may run. progress: of the share that is done."""
        self._compiler.wait()
        self._take_up(self._compiler.take())
        most = len(self._wanted) if self._wanted else MOST
        done = 0
        while size := self._next():
            if progress is not None:
                progress(min(done / most, 1.0))
            self._compiling = size
            self._take_up(self._compiler.compile(size))
            done += 1

    def close(self) -> None:
        """Compile nothing any more."""
        self._wanted = ()
        self._compiler.close()

    def _next(self) -> int:
        """The size to compile next; 0 for none."""
        self._due = SECONDS
        static = self._runner.static_shapes | self._refused
        least = 2 if self._runner.is_invariant else 1  # a single token has a spare one
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

    def _take_up(self, shape: StaticShape | DeviceError | None) -> None:
        """Use a static shape that gives the right logits, if there is one; warn of others."""
        if shape is None:
            return
        size, self._compiling = self._compiling, 0
        if isinstance(shape, DeviceError):
            self._refuse(size, str(shape))
            return
        try:
            trial = try_out(self._runner, shape)
        except (SessionError, RuntimeError) as error:  # no room in memory or context, or OpenVINO's
            self._refuse(size, str(error))
            return
        if not trial.is_right:
            self._refuse(size, "it gives other logits than the model itself")
            return
        self._saved.append(trial.seconds_saved)
        self._costs.take_up(self._role, self._runner.static_shapes, mean(self._saved))

    def _refuse(self, size: int, reason: str) -> None:
        self._refused.add(size)
        message = f"{reason}; going on without a static shape for {size} tokens"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
