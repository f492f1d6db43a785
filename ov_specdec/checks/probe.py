"""Feeds one text to a runner in several ways, for checks that compare the logits."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from ov_specdec.cache.slot import Slot
from ov_specdec.runner.base import Runner, Span
from ov_specdec.sampling.logits import Logits

NUM_IDS = 47
"""Number of ids in the text, below any vocabulary's size."""


def probe_tokens(begin: int, end: int) -> list[int]:
    """The ids at these positions of the text."""
    return [(index * index + index // 7) % NUM_IDS for index in range(begin, end)]


class ProbeSpan(NamedTuple):
    """Positions of the text that a pass feeds to a sequence, after a rollback to `begin` if due.

    num_rows: of logits, of the last tokens. sequence: its index. shift: feeds the tokens of as many
    positions later, as rejected draft tokens would be.
    """

    begin: int
    end: int
    num_rows: int = 1
    sequence: int = 0
    shift: int = 0


class Probe:
    """Sequences of a runner that hold the text. They share no cache, and `close` frees them.

    num_stable: length below which none is rolled back; None: see `Span`. new_namespace: of each.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        num_stable: int | None = None,
        new_namespace: Callable[[], Hashable] = object,
    ) -> None:
        self._runner = runner
        self._num_stable = num_stable
        self._new_namespace = new_namespace
        self._slots: list[Slot] = []

    def forward(self, *spans: ProbeSpan) -> Logits:
        """Run one pass. Returns rows of the first span, which the next pass may overwrite."""
        return self._runner.forward([self._prepare(span) for span in spans])[0]

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
        return Span(slot, tokens, span.num_rows, num_committed=self._num_stable)
