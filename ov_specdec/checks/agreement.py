"""Compares rows of logits closely: of passes of several sizes, and of several KV caches."""

from contextlib import closing

import numpy as np

from ov_specdec.cache.slot import Beyond
from ov_specdec.checks.probe import Probe, ProbeSpan
from ov_specdec.runner.base import Runner
from ov_specdec.sampling.logits import Logits

PREFIX = 8
"""Tokens before the compared passes."""

COMPARED_TOKENS = 3
"""Tokens of one pass, and of as many others with one each: verification needs them to agree."""

MIN_LENGTH = 2 * PREFIX + COMPARED_TOKENS
"""Minimum context of a compared model."""

TOLERANCE = 0.1
"""Maximum distance of two rows by rounding: in bf16 with a u8 KV cache 0.01 was usual and 0.06 the
maximum. With positions off by one or two it was 0.09 to 1.3."""

EXACT_TOLERANCE = 0.001
"""The same in f32, where it was less than 0.00001. For a tiny Granite that lost the states of its
linear attention, it was 0.0023."""

AROUND = 8
"""Compared tokens around a position, half of them beyond it."""


def largest_distance(runner: Runner) -> float:
    """The distance between logits of a pass over several tokens and of passes over one.

    The latter are rolled back first, which tests rollback too; a runner that rolls back to the
    beginning recomputes everything. It takes five small passes, and caches nothing.
    """
    end = PREFIX + COMPARED_TOKENS
    with closing(Probe(runner, num_stable=PREFIX)) as probe:
        probe.forward(ProbeSpan(0, PREFIX))
        spans = [ProbeSpan(begin, begin + 1) for begin in range(PREFIX, end)]
        single = [probe.forward(span)[0].copy() for span in spans]
        several = probe.forward(ProbeSpan(PREFIX, end, COMPARED_TOKENS))
        return max(map(distance, several, single))


def rows_around(runner: Runner, position: int) -> Logits:
    """Logits [AROUND, vocab] of the tokens around a position, half of them in passes of one."""
    begin, end = position - AROUND // 2, position + AROUND // 2
    original = runner.original_context
    is_beyond = original is not None and end > original
    namespace = Beyond(object()) if is_beyond else object()
    with closing(Probe(runner, new_namespace=lambda: namespace)) as probe:
        probe.forward(ProbeSpan(0, begin))
        spans = [ProbeSpan(begin, position, position - begin)]
        spans += [ProbeSpan(index, index + 1) for index in range(position, end)]
        return np.concatenate([probe.forward(span).copy() for span in spans])


def distance(row: Logits, other: Logits) -> float:
    """The distance of two rows of logits [vocab], relative to their deviation from their mean.

    0 for equal rows, the square root of 2 for uncorrelated ones. A constant added to a row changes
    no distribution, and does not count.
    """
    a, b = (each - np.mean(each) for each in (row.astype(np.float64), other.astype(np.float64)))
    length = float(max(np.linalg.norm(a), np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / length if length else 0.0
