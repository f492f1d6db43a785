"""Feeds one text to a runner in several ways, for checks that compare the logits."""

from collections.abc import Callable, Hashable
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ov_specdec.cache.slot import LongRopeNamespace, Slot
from ov_specdec.runner.base import Runner, Span
from ov_specdec.sampling.logits import Logits

if TYPE_CHECKING:
    from ov_specdec.runner.paged import PagedModel

NUM_IDS = 47
"""Number of ids in the text, below any vocabulary's size."""

NUM_BEFORE = 8
"""Tokens before the compared passes."""

COMPARED_TOKENS = 3
"""Tokens of one pass, and of as many others with one each: verification needs them to agree."""

MIN_LENGTH = 2 * NUM_BEFORE + COMPARED_TOKENS
"""Minimum context of a compared model."""

AROUND = 8
"""Compared tokens around a position, half of them beyond it."""

NUM_CACHED = 34
"""Cached tokens before the passes of a static shape's trial: beyond the first block of 32."""

STATIC_TOLERANCE = 0.02
"""Allowed difference of a static shape's logits, relative to the greatest, if bits need not be
equal: rounding to bf16 in another order causes 0.005."""


def probe_tokens(begin: int, end: int) -> list[int]:
    """The ids at these positions of the text."""
    return [(index * index + index // 7) % NUM_IDS for index in range(begin, end)]


class ProbeSpan(NamedTuple):
    """Positions of the text that a pass feeds to a sequence, after a rollback to `begin` if due.

    num_rows: of logits, of the last tokens. sequence: its index. shift: feeds the tokens of as many
    positions later, as rejected draft tokens would be. is_generated: they are no part of a prompt.
    """

    begin: int
    end: int
    num_rows: int = 1
    sequence: int = 0
    shift: int = 0
    is_generated: bool = False

    def part(self, begin: int, end: int) -> "ProbeSpan":
        """The same at other positions, with a row for each."""
        return self._replace(begin=begin, end=end, num_rows=end - begin)


class Probe:
    """Sequences of a runner that hold the text. They share no cache, and `close` frees them.

    new_namespace: of each.
    """

    def __init__(self, runner: Runner, new_namespace: Callable[[], Hashable] = object) -> None:
        self._runner = runner
        self._new_namespace = new_namespace
        self._slots: list[Slot] = []

    def forward(self, *spans: ProbeSpan) -> Logits:
        """Run one pass. Returns rows of the first span, which the next pass may overwrite."""
        return self._runner.forward([self._prepare(span) for span in spans])[0]

    def forward_with_states(self, span: ProbeSpan) -> Logits:
        """Run one pass. Returns rows of a span, each with the token's hidden state behind it."""
        taken = np.zeros((span.end - span.begin, self._runner.hidden_size or 0), np.float32)
        own = self._prepare(span)._replace(hidden_states=taken)
        return np.hstack([self._runner.forward([own])[0], taken])

    def close(self) -> None:
        """Free the sequences."""
        while self._slots:
            self._slots.pop().free()

    def _prepare(self, span: ProbeSpan) -> Span:
        while len(self._slots) <= span.sequence:
            self._slots.append(self._runner.open(self._new_namespace()))
        slot = self._slots[span.sequence]
        if slot.length > span.begin:
            slot.rollback(span.begin)
        # From its length, since some runners roll back further.
        tokens = probe_tokens(slot.length + span.shift, span.end + span.shift)
        return Span(slot, tokens, span.num_rows, len(tokens) if span.is_generated else 0)


def largest_distance(runner: Runner) -> float:
    """The distance between logits of a pass over several tokens and of passes over one.

    The former is rolled back first, which tests rollback too; a runner that rolls back to the
    beginning recomputes everything. It takes five small passes, and caches nothing.
    """
    end = NUM_BEFORE + COMPARED_TOKENS
    with closing(Probe(runner)) as probe:
        probe.forward(ProbeSpan(0, NUM_BEFORE))
        following = ProbeSpan(NUM_BEFORE, end, COMPARED_TOKENS, is_generated=True)
        several = probe.forward(following).copy()
        spans = [following.part(begin, begin + 1) for begin in range(NUM_BEFORE, end)]
        single = [probe.forward(span)[0].copy() for span in spans]
        return max(map(distance, several, single))


def rows_around(runner: Runner, position: int) -> Logits:
    """Logits [AROUND, vocab] of the tokens around a position, half of them in passes of one."""
    begin, end = position - AROUND // 2, position + AROUND // 2
    original = runner.original_context
    has_long_rope = original is not None and end > original
    namespace = LongRopeNamespace(object()) if has_long_rope else object()
    with closing(Probe(runner, lambda: namespace)) as probe:
        probe.forward(ProbeSpan(0, begin))
        after = ProbeSpan(begin, end, is_generated=True)
        spans = [after.part(begin, position)]
        spans += [after.part(index, index + 1) for index in range(position, end)]
        return np.concatenate([probe.forward(span).copy() for span in spans])


def distance(row: Logits, other: Logits) -> float:
    """The distance of two rows of logits [vocab], relative to their deviation from their mean.

    0 for equal rows, the square root of 2 for uncorrelated ones. A constant added to a row changes
    no distribution, and does not count.
    """
    a, b = (each - np.mean(each) for each in (row.astype(np.float64), other.astype(np.float64)))
    length = float(max(np.linalg.norm(a), np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / length if length else 0.0


def try_static(runner: "PagedModel", size: int, compiled: Any) -> bool:
    """Compare a pass of a static shape with a dynamic one; if it is right, the runner keeps it.

    Its logits have to be bitwise equal if passes are batch-invariant. Raises `SessionError` if
    context or memory have no room.
    """
    is_right = False
    span = ProbeSpan(NUM_CACHED, NUM_CACHED + size, size, is_generated=True)
    with closing(Probe(runner)) as probe:
        try:
            probe.forward(ProbeSpan(0, NUM_CACHED))
            logits = probe.forward_with_states(span)
            runner.add_static(size, compiled)
            others = probe.forward_with_states(span)
            most = 0.0 if runner.is_invariant else STATIC_TOLERANCE * np.abs(logits).max()
            is_right = bool(np.abs(logits - others).max() <= most)
        finally:
            if not is_right:
                runner.drop_static(size)
    return is_right
