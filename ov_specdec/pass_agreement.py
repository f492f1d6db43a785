"""Compares a pass over several tokens with passes over one: verification needs them to agree."""

import numpy as np

from ov_specdec.invariance import text
from ov_specdec.logits import Logits
from ov_specdec.runner.base import Runner, Slot, Span

PREFIX = 8
"""Tokens before the compared ones."""

NUM_TOKENS = 3
"""Tokens of one pass, and of three others with one each."""

TOLERANCE = 0.1
"""Maximum distance of two rows by rounding: in bf16 with a u8 KV cache 0.01 was usual and 0.06 the
maximum. With positions off by one or two it was 0.09 to 1.3."""

EXACT_TOLERANCE = 0.001
"""The same in f32, where it was less than 0.00001. For a tiny Granite that lost the states of its
linear attention, it was 0.0023."""


def largest_distance(runner: Runner) -> float:
    """The distance between logits of a pass over several tokens and of passes over one.

    The latter are rolled back first, which tests rollback too; a runner that rolls back to the
    beginning recomputes everything. It takes five small passes, and caches nothing.
    """
    slot = runner.open(object())  # a separate namespace: it shares nothing
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
    """The distance of two rows of logits [vocab], relative to their deviation from their mean.

    0 for equal rows, the square root of 2 for uncorrelated ones. A constant added to a row changes
    no distribution, and does not count.
    """
    a, b = (each - np.mean(each) for each in (row.astype(np.float64), other.astype(np.float64)))
    length = float(max(np.linalg.norm(a), np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / length if length else 0.0


def _feed(runner: Runner, slot: Slot, end: int, num_rows: int) -> Logits:
    """Feed a sequence the text up to `end`. Returns the last rows of logits."""
    span = Span(slot, text(slot.length, end), num_rows, num_standing=PREFIX)
    return runner.forward([span])[0].copy()
