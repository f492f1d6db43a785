"""Runner on the KV states of a decoder that attends to an encoder's output."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.baseline import common_prefix
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
from ov_specdec.runner.encoder import Encoder
from ov_specdec.runner.source import Source

UNKEPT = "the KV cache of an encoder-decoder model cannot be saved to a file"

HIDDEN_STATES = "encoder_hidden_states"


def decoder_inputs(
    tokens: Sequence[int], past_length: int, hidden: NDArray[np.float32]
) -> dict[str, NDArray[Any]]:
    """Possible inputs of a decoder of an encoder-decoder model, by name, to append tokens.

    hidden: output of the encoder, [1, places, width].
    """
    return {
        "input_ids": np.array([tokens], np.int64),
        HIDDEN_STATES: hidden,
        "encoder_attention_mask": np.ones(hidden.shape[:2], np.int64),
        "cache_position": np.arange(past_length, past_length + len(tokens)),
        "beam_idx": np.zeros(1, np.int32),
    }


class EncoderDecoderModel:
    """A compiled decoder and the encoder of its sources. Implements `Runner`.

    The namespace of a sequence is its `Source`, which its first pass encodes. The decoder has two
    kinds of states. Keys and values of the sequence grow, and rollback trims them at once, since
    there is no mask to hide stale entries, and positions count by their length. Keys and values of
    the source are computed by the first pass after a reset; later passes ignore their source. So
    another source needs a reset; a new sequence of the same source does not.

    One sequence at a time: a new one takes over the states, and the previous one becomes empty.

    axes: the token axis of each growing state, by the state's name.
    """

    max_sequences = 1
    border = None
    num_free = capacity = hidden_size = max_draft_tokens = None
    bytes_per_token = bytes_per_state = 0
    static_shapes: frozenset[int] = frozenset()
    forgets_freely = is_invariant = is_proven = False

    def __init__(
        self,
        compiled: ov.CompiledModel,
        axes: Mapping[str, int],
        encoder: Encoder,
        *,
        max_length: int,
        vocab_size: int,
    ) -> None:
        self.max_length = max_length
        self.encoder = encoder
        self._compiled = compiled
        self._axes = axes
        self._inputs = frozenset(port.any_name for port in compiled.inputs) - {HIDDEN_STATES}
        self._vocab_size = vocab_size
        self._request = compiled.create_infer_request()
        # The content of the states: source and length; their owner, or tokens left by the last one.
        self._source: Source | None = None
        self._hidden: NDArray[np.float32] | None = None
        self._length = 0
        self._holder: DecoderSlot | None = None
        self._left: Sequence[int] = ()

    def limit(self, num_tokens: int, num_states: int = 0) -> None:
        """Do nothing: the device manages the memory."""

    def open(self, namespace: Hashable = None) -> "DecoderSlot":
        """A new sequence. Raises `SessionError` for a namespace that is not a `Source`."""
        if not isinstance(namespace, Source):
            raise SessionError("a sequence of an encoder-decoder model was opened without a source")
        return DecoderSlot(self, namespace)

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """Append tokens to one sequence; logits [num_rows, vocab], a view.

        The next pass overwrites it. After an error the sequence is empty.
        """
        span = only_span(spans)
        slot = self._own(span.slot)
        check_room(slot.length, len(span.tokens), self.max_length)
        check_rows(span)
        if self._holder is not slot:
            self.match_prefix(slot, ())
        return [self._append(slot.source, span)]

    def match_prefix(self, slot: Slot, tokens: Sequence[int]) -> int:
        """Take over the states, with the prefix of these tokens that was left for this source."""
        own = self._own(slot)
        kept = 0
        if self._source == own.source:
            kept = common_prefix(self._left, tokens)
            self._trim(kept)
        else:
            self._reset()
        self._holder, self._left = own, ()
        return kept

    def rollback(self, slot: Slot, length: int) -> None:
        """Trim the states at once."""
        own = self._own(slot)
        check_rollback(own.length, length)
        if own.length:
            self._trim(length)

    def commit(self, slot: Slot, tokens: Sequence[int], length: int) -> None:
        """Do nothing: sequences do not share states."""

    def free(self, slot: Slot, tokens: Sequence[int] = ()) -> None:
        """Release the states; a later sequence of the source may reuse these tokens."""
        if self._holder is self._own(slot):
            self._holder, self._left = None, list(tokens)

    def read_kv(self, slot: Slot) -> dict[str, NDArray[Any]]:  # noqa: ARG002
        """Raises `SessionError`: the states belong to a source, which files do not contain."""
        raise SessionError(UNKEPT)

    def write_kv(self, slot: Slot, tensors: Mapping[str, NDArray[Any]], length: int) -> None:  # noqa: ARG002
        """Raises `SessionError`: see `read_kv`."""
        raise SessionError(UNKEPT)

    def length_of(self, slot: "DecoderSlot") -> int:
        """Tokens of a sequence in the states; 0 if another one owns them."""
        return self._length if self._holder is slot else 0

    def _own(self, slot: Slot) -> "DecoderSlot":
        """The sequence; `SessionError` for one of another model."""
        if not isinstance(slot, DecoderSlot) or slot.model is not self:
            raise SessionError(FOREIGN)
        return slot

    def _append(self, source: Source, span: Span) -> Logits:
        with self._renewed_by_errors():
            if self._hidden is None:
                self._hidden = self.encoder.encode(source)
                self._source = source
                self._set_hidden(self._hidden)
            size = len(span.tokens)
            feed = decoder_inputs(span.tokens, self._length, self._hidden)
            feed[LOGITS_INDICES] = np.arange(size - span.num_rows, size)
            self._request.infer(
                {name: feed[name] for name in self._inputs}, share_inputs=True, share_outputs=True
            )
            self._length += size
        logits: Logits = self._request.get_tensor("logits").data
        return logits[0, -span.num_rows :, : self._vocab_size]

    def _set_hidden(self, hidden: NDArray[np.float32]) -> None:
        """Copy the encoder's output to the request's own tensor.

        In bf16 the CPU plugin keeps reading the memory of the first source, whatever tensor is set.
        """
        tensor = self._request.get_tensor(HIDDEN_STATES)
        tensor.shape = hidden.shape
        tensor.data[:] = hidden

    def _trim(self, length: int) -> None:
        """Drop all but the first `length` tokens from the growing states."""
        if length == self._length:
            return
        with self._renewed_by_errors():
            for state in self._request.query_state():
                if state.name in self._axes:
                    axis = self._axes[state.name]
                    state.state = ov.Tensor(state.state.data.take(range(length), axis))
            self._length = length

    def _reset(self) -> None:
        self._request.reset_state()
        self._forget()

    def _forget(self) -> None:
        self._source, self._hidden, self._length = None, None, 0
        self._holder, self._left = None, ()

    @contextmanager
    def _renewed_by_errors(self) -> Iterator[None]:
        """Make a new request after an error: the effects of a failed pass outlive a reset."""
        try:
            yield
        except BaseException:
            self._request = self._compiled.create_infer_request()
            self._forget()
            raise


@dataclass(eq=False)
class DecoderSlot:
    """A sequence of an `EncoderDecoderModel`, with its source."""

    model: EncoderDecoderModel
    source: Source

    @property
    def length(self) -> int:
        """Number of its tokens in the states."""
        return self.model.length_of(self)
