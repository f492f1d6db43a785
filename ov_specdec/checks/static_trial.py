"""Tries out a static shape before its use: whether its logits are right, and how much it saves."""

from contextlib import closing
from time import perf_counter
from typing import Any

import numpy as np

from ov_specdec.checks.probe import Probe, ProbeSpan
from ov_specdec.runner.paged import PagedModel
from ov_specdec.sampling.logits import Logits

NUM_CACHED = 34
"""Cached tokens before the passes of a trial: beyond the first block of 32."""

PASSES = 4
"""Passes of each form in a trial. The first dynamic one follows a pass of another size."""

TOLERANCE = 0.02
"""Allowed difference of logits, relative to the greatest, if bits need not be equal: rounding to
bf16 in another order causes 0.005."""


def try_out(runner: PagedModel, size: int, compiled: Any) -> float | None:
    """Compare passes of a static shape with dynamic ones; if it is right, the runner keeps it.

    Returns the seconds that it saves; None if its logits are wrong. They have to be bitwise equal
    if passes are batch-invariant. Raises `SessionError` if context or memory have no room.
    """
    is_right = False
    with closing(Probe(runner)) as probe:
        try:
            probe.forward(ProbeSpan(0, NUM_CACHED))
            logits, seconds = _time(probe, size)
            runner.add_static(size, compiled)
            others, own_seconds = _time(probe, size)
            is_right = np.array_equal(logits, others)
            if not runner.is_invariant:
                is_right = bool(np.abs(logits - others).max() <= TOLERANCE * np.abs(logits).max())
        finally:
            if not is_right:
                runner.drop_static(size)
    return max(seconds - own_seconds, 0.0) if is_right else None


def _time(probe: Probe, size: int) -> tuple[Logits, float]:
    """Logits [size, vocab] of a pass, and its minimum seconds."""
    seconds = []
    for _ in range(PASSES):
        begin = perf_counter()
        logits = probe.forward(ProbeSpan(NUM_CACHED, NUM_CACHED + size, size))
        seconds.append(perf_counter() - begin)
    return logits.copy(), min(seconds)
