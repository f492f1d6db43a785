"""Runner on recurrent states as exported: copies states before draft tokens, for rollback."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.runner.base import Span, require_own
from ov_specdec.runner.stateful import StatefulModel, StatefulSlot
from ov_specdec.sampling.logits import Logits

MOST_REPEATED = 8
"""Maximum tokens to recompute together with draft tokens, instead of in an extra pass. With a
Qwen3.5 of 0.8 B each token adds 3 ms to a pass of 50 ms on CPU: half of eight cost as much as such
a pass in every fourth round."""


class RewindingModel(StatefulModel):
    """A stateful model with recurrent layers, whose passes continue from its states.

    Recurrent states are copied before a pass with draft tokens. After a rejection they are
    restored, and the KV cache is rolled back to the same length: the accepted tokens are recomputed
    with the next draft tokens. One sequence runs at a time. Later sequences reuse its states if
    they begin with all of its tokens, such as the next turn. max_draft_tokens: 0 if copying takes
    longer than draft tokens save; see `Runner`.
    """

    max_draft_tokens: int | None = None

    def __init__(
        self,
        compiled: ov.CompiledModel,
        axes: dict[str, int],
        *,
        max_length: int,
        vocab_size: int,
        max_masked: int,
        max_draft_tokens: int | None,
    ) -> None:
        super().__init__(
            compiled,
            axes,
            max_length=max_length,
            vocab_size=vocab_size,
            max_masked=max_masked,
            shares_states=False,
        )
        self.has_cheap_rollback = False
        self.max_draft_tokens = max_draft_tokens
        self.left: tuple[Hashable, list[int]] = (None, [])

    def open(self, namespace: Hashable = None) -> "RewindingSlot":
        """A new sequence."""
        return RewindingSlot(self, namespace)

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """Append tokens to one sequence; after an error it is empty."""
        self._check(spans)
        [span] = spans
        slot, tokens = require_own(span.slot, RewindingSlot, self), span.tokens
        self.left = (None, [])
        try:
            if span.num_committed is not None:
                tokens = tokens[self._prepare(slot, span, span.num_committed) :]
            return super().forward([Span(slot, tokens, span.num_rows)])
        except BaseException:
            slot.free()
            raise

    def _prepare(self, slot: "RewindingSlot", span: Span, num_committed: int) -> int:
        """Copy the states for a rollback of this span. Returns the tokens that were fed for it.

        The last accepted token is not among them: its row is needed with those of draft tokens.
        """
        total, num_uncached = slot.length + len(span.tokens), num_committed - slot.length
        if total <= num_committed or num_uncached < 0:
            return 0  # no draft tokens, or there is a copy already
        first = min(num_uncached - 1, len(span.tokens) - span.num_rows)
        if first <= (MOST_REPEATED if slot.length else 0):
            first = 0
        if first:
            super().forward([Span(slot, span.tokens[:first], 1)])
        if slot.length not in (0, slot.copied):
            slot.copied = None
            for state in slot.recurrent():
                data = state.state.data
                np.copyto(slot.states.setdefault(state.name, np.empty_like(data)), data)
            slot.copied = slot.length
        return first


class RewindingSlot(StatefulSlot):
    """A sequence of a `RewindingModel`.

    copied: its length at the copy of recurrent states; None: no copy. states: the copies, by name.
    """

    owner: RewindingModel

    def __init__(self, owner: RewindingModel, namespace: Hashable) -> None:
        super().__init__(owner, namespace)
        self.copied: int | None = None
        self.states: dict[str, NDArray[Any]] = {}

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """Continue from the last sequence's states, if these tokens begin with all of its."""
        self.free()
        namespace, left = self.owner.left
        if self.namespace != namespace or list(tokens[: len(left)]) != left:
            return 0
        self.owner.left = (None, [])
        return super().match_prefix(left)

    def rollback(self, length: int) -> None:
        """Roll back to the last copy within `length` tokens, else to the beginning."""
        if length == self.length:
            return
        if self.copied is None or not 0 < self.copied <= length:
            self.free()
            return
        for state in self.recurrent():
            state.state = ov.Tensor(self.states[state.name])
        super().rollback(self.copied)

    def free(self, tokens: Sequence[int] = ()) -> None:
        """Empty the sequence; its states can be reused until the next pass."""
        if tokens:
            self.rollback(len(tokens))
        if left := list(tokens[: self.length]):
            self.owner.left = (self.namespace, left)
        super().free(left)
        self.copied = None

    def recurrent(self) -> list[Any]:
        """The recurrent states of a non-empty sequence."""
        states = self.held_in.request.query_state()
        return [state for state in states if state.name not in self.owner.axes]
