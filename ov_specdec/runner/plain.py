"""Runner on states without rollback: plain decoding, one sequence at a time."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.cache.block_table import check_rollback
from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits
from ov_specdec.runner.base import (
    FOREIGN,
    LOGITS_INDICES,
    Slot,
    Span,
    check_room,
    check_rows,
    only_span,
)

UNKEPT = "recurrent states that cannot be rolled back cannot be saved to files"


class PlainModel:
    """A stateful model with recurrent layers that OpenVINO does not page. Implements `Runner`.

    Exported layers such as Granite 4.0's continue their states with single tokens only; a pass over
    more tokens starts from empty states. So several tokens are prefilled together with all tokens
    before them, in one pass, which takes far less than one by one; a rollback empties the states.
    Draft tokens cannot be verified.
    """

    max_sequences = 1
    border = num_free = capacity = hidden_size = None
    max_draft_tokens = bytes_per_token = bytes_per_state = 0
    static_shapes: frozenset[int] = frozenset()
    is_invariant = is_proven = False

    def __init__(self, compiled: ov.CompiledModel, *, max_length: int, vocab_size: int) -> None:
        self.max_length = max_length
        self._vocab_size = vocab_size
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        self._inputs = frozenset(name for port in compiled.inputs for name in port.names)
        self._holder: PlainSlot | None = None

    def limit(self, num_tokens: int, num_states: int = 0) -> None:
        """Do nothing: the device manages the memory."""

    def open(self, namespace: Hashable = None) -> "PlainSlot":  # noqa: ARG002
        """A new sequence; sequences do not share states."""
        return PlainSlot(self)

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """Append tokens to one sequence; logits [num_rows, vocab], a view.

        The next pass overwrites it. After an error the sequence is empty.
        """
        span = only_span(spans)
        slot = self._own(span.slot)
        check_room(slot.length, len(span.tokens), self.max_length)
        check_rows(span)
        tokens = [*slot.tokens, *span.tokens]
        self._take(slot)
        try:
            logits = self._pass(tokens, len(slot.tokens), span)
        except BaseException:
            self._request = self._compiled.create_infer_request()
            self._take(None)
            raise
        slot.tokens = tokens
        return [logits]

    def match_prefix(self, slot: Slot, tokens: Sequence[int]) -> int:  # noqa: ARG002
        """Nothing is shared."""
        self.free(slot)
        return 0

    def rollback(self, slot: Slot, length: int) -> None:
        """Roll back to the beginning, unless the length is unchanged."""
        own = self._own(slot)
        check_rollback(own.length, length)
        if length < own.length:
            self.free(own)

    def commit(self, slot: Slot, tokens: Sequence[int], length: int) -> None:
        """Do nothing: sequences do not share states."""

    def free(self, slot: Slot, tokens: Sequence[int] = ()) -> None:  # noqa: ARG002
        """Empty the sequence."""
        if self._holder is self._own(slot):
            self._take(None)

    def read_kv(self, slot: Slot) -> dict[str, NDArray[Any]]:  # noqa: ARG002
        """Raises `SessionError`."""
        raise SessionError(UNKEPT)

    def write_kv(self, slot: Slot, tensors: Mapping[str, NDArray[Any]], length: int) -> None:  # noqa: ARG002
        """Raises `SessionError`."""
        raise SessionError(UNKEPT)

    def _own(self, slot: Slot) -> "PlainSlot":
        """The sequence; `SessionError` for one of another model."""
        if not isinstance(slot, PlainSlot) or slot.model is not self:
            raise SessionError(FOREIGN)
        return slot

    def _take(self, slot: "PlainSlot | None") -> None:
        """Give the states to this sequence; the previous owner becomes empty."""
        if self._holder is not None and self._holder is not slot:
            self._holder.tokens = []
        self._holder = slot

    def _pass(self, tokens: Sequence[int], length: int, span: Span) -> Logits:
        """Feed the tokens after `length`, or all of them. Returns the wanted rows of a span."""
        if length == 0 or len(tokens) - length > 1:
            self._request.reset_state()
            length = 0
        total, size = len(tokens), len(tokens) - length
        feed = {
            "input_ids": np.array([tokens[length:]], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(length, total)[None],
            "beam_idx": np.zeros(1, np.int32),
            LOGITS_INDICES: np.arange(size - span.num_rows, size),
        }
        wanted = {name: array for name, array in feed.items() if name in self._inputs}
        self._request.infer(wanted, share_outputs=True)
        logits: Logits = self._request.get_tensor("logits").data
        return logits[0, -span.num_rows :, : self._vocab_size]


@dataclass(eq=False)
class PlainSlot:
    """A sequence of a `PlainModel`, and its tokens while the states hold them."""

    model: PlainModel
    tokens: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of its tokens in the states."""
        return len(self.tokens)
