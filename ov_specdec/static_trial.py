"""Tries out a static shape before its use: whether its logits are right, and how much it saves."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from ov_specdec.invariance import text
from ov_specdec.logits import Logits
from ov_specdec.runner.base import Runner, Slot, Span
from ov_specdec.runner.static_shape import ShapedRunner, StaticShape

PLACE = 34
"""Cached tokens before the passes of a trial: beyond the first block of 32."""

PASSES = 4
"""Passes of each form in a trial. The first dynamic one follows a pass of another size."""

TOLERANCE = 0.02
"""Allowed difference of logits, relative to the greatest, if bits need not be equal: rounding to
bf16 in another order causes 0.005."""


@dataclass(frozen=True)
class Trial:
    """The result of a trial. is_right: whether logits agree as required."""

    is_right: bool
    seconds_saved: float


def try_out(runner: ShapedRunner, shape: StaticShape) -> Trial:
    """Compare passes of a static shape with dynamic ones; if it is right, the runner keeps it.

    Logits have to be bitwise equal if passes are batch-invariant. Raises `SessionError` if context
    or memory have no room for the passes.
    """
    slot = runner.open(object())  # a separate namespace: it shares nothing
    is_right = False
    try:
        runner.forward([Span(slot, text(0, PLACE), 1)])
        logits, seconds = _time(runner, slot, shape.size)
        runner.add_static(shape)
        own_logits, own_seconds = _time(runner, slot, shape.size)
        is_right = _is_right(logits, own_logits, runner.is_invariant)
    finally:
        runner.free(slot)
        if not is_right:
            runner.drop_static(shape.size)
    return Trial(is_right, max(seconds - own_seconds, 0.0))


def _time(runner: Runner, slot: Slot, size: int) -> tuple[Logits, float]:
    """Logits [size, vocab] of a pass, and its minimum seconds."""
    span = Span(slot, text(PLACE, PLACE + size), size)
    seconds = []
    for _ in range(PASSES):
        begin = perf_counter()
        logits = runner.forward([span])[0]
        seconds.append(perf_counter() - begin)
        runner.rollback(slot, PLACE)
    return logits.copy(), min(seconds)


def _is_right(logits: Logits, others: Logits, needs_bits: bool) -> bool:
    if needs_bits:
        return np.array_equal(logits, others)
    return bool(np.abs(logits - others).max() <= TOLERANCE * np.abs(logits).max())
