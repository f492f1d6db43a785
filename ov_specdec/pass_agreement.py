"""Whether a pass over several tokens gives what passes over one give: verification rests on it."""

import numpy as np

from ov_specdec.invariance import text
from ov_specdec.logits import Logits
from ov_specdec.runner.base import Runner, Slot, Span

PREFIX = 8
"""Tokens before those that are compared."""

NUM_TOKENS = 3
"""Tokens that one pass reads, and three others one each."""

TOLERANCE = 0.1
"""Distance of two rows that rounding may have: 0.01 was usual in bf16 with a u8 KV cache, 0.06 the
most. With positions that are wrong by one or two it was 0.09 to 1.3."""

EXACT_TOLERANCE = 0.001
"""The same in f32, where it was less than 0.00001. Where a tiny Granite forgot the states of its
linear attention, it was 0.0023."""


def largest_distance(runner: Runner) -> float:
    """How far the logits of a pass over several tokens are from those of passes over one.

    The latter are rolled back before, so that what a rollback leaves is seen too: a runner that
    goes back to the beginning reads all anew. Five small passes, over a sequence that leaves
    nothing.
    """
    slot = runner.open(object())  # a namespace of its own: it shares nothing
    end = PREFIX + NUM_TOKENS
    try:
        _feed(runner, slot, PREFIX, 1)
        single = [_feed(runner, slot, place + 1, 1)[0] for place in range(PREFIX, end)]
        runner.rollback(slot, PREFIX)
        several = _feed(runner, slot, end, NUM_TOKENS)
    finally:
        runner.free(slot)
    return max(map(distance, several, single))


def distance(row: Logits, other: Logits) -> float:
    """Of two rows of logits [vocab], relative to how far these differ from their mean.

    0 for equal ones, the square root of 2 for those that have nothing in common. A number that is
    added to a whole row changes no distribution, and does not count.
    """
    a, b = (each - np.mean(each) for each in (row.astype(np.float64), other.astype(np.float64)))
    length = float(max(np.linalg.norm(a), np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / length if length else 0.0


def _feed(runner: Runner, slot: Slot, end: int, num_rows: int) -> Logits:
    """Have a sequence hold the text up to a place; the last rows of logits."""
    span = Span(slot, text(slot.length, end), num_rows, num_standing=PREFIX)
    return runner.forward([span])[0].copy()
