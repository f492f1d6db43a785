"""Runner on the KV states of a decoder that attends to an encoder's output; its encoder."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.cache.slot import EncoderInput, Slot, common_prefix
from ov_specdec.errors import SessionError
from ov_specdec.runner.base import LOGITS_INDICES, Runner, Span
from ov_specdec.sampling.logits import Logits

ATTENTION_MASK = "attention_mask"

ALIGNMENT_WEIGHTS = "alignment_weights"
"""Name of the output with cross-attention weights, [1, heads, tokens, positions]."""

HIDDEN_STATES = "encoder_hidden_states"


class Encoder:
    """A compiled encoder. The decoders of a main and a draft model may share one.

    It keeps the output for the last source, because a draft's decoder needs it after the main's.
    Thread-safe.
    """

    def __init__(self, compiled: ov.CompiledModel) -> None:
        self._compiled = compiled
        self._inputs = {port.any_name for port in compiled.inputs}
        [self._reads] = self._inputs - {ATTENTION_MASK}
        self._last: tuple[EncoderInput, NDArray[np.float32]] | None = None
        self._lock = Lock()
        self.seconds = 0.0
        """Total time of its passes."""

    def encode(self, source: EncoderInput) -> NDArray[np.float32]:
        """The hidden states [1, positions, width] of a source."""
        with self._lock:
            if self._last is None or self._last[0] != source:
                began = perf_counter()
                feed = {self._reads: np.ascontiguousarray(source.values)}
                if ATTENTION_MASK in self._inputs:
                    feed[ATTENTION_MASK] = np.ones(source.values.shape, np.int64)
                output = self._compiled.create_infer_request().infer(feed, share_inputs=True)
                self._last = source, output[self._compiled.output(0)]
                self.seconds += perf_counter() - began
            return self._last[1]


def decoder_inputs(
    tokens: Sequence[int], past_length: int, hidden: NDArray[np.float32]
) -> dict[str, NDArray[Any]]:
    """Possible inputs of a decoder of an encoder-decoder model, by name, to append tokens.

    hidden: output of the encoder, [1, positions, width].
    """
    return {
        "input_ids": np.array([tokens], np.int64),
        HIDDEN_STATES: hidden,
        "encoder_attention_mask": np.ones(hidden.shape[:2], np.int64),
        "cache_position": np.arange(past_length, past_length + len(tokens)),
        "beam_idx": np.zeros(1, np.int32),
    }


class EncoderDecoderModel(Runner):
    """A compiled decoder and the encoder of its sources.

    The namespace of a sequence is its source, which its first pass encodes. The decoder has two
    kinds of states. Keys and values of the sequence grow, and rollback trims them at once, since
    there is no mask to hide stale entries, and positions count by their length. Keys and values of
    the source are computed by the first pass after a reset; later passes ignore their source. So
    another source needs a reset; a new sequence of the same source does not.

    One sequence at a time: a new one takes over the states, and the previous one becomes empty.

    axes: the token axis of each growing state, by the state's name.
    """

    max_sequences = 1

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
        self._source: EncoderInput | None = None
        self._hidden: NDArray[np.float32] | None = None
        self.length = 0
        self.holder: DecoderSlot | None = None
        self.left: Sequence[int] = ()

    def open(self, namespace: Hashable = None) -> "DecoderSlot":
        """A new sequence. Raises `SessionError` for a namespace that is not an `EncoderInput`."""
        if not isinstance(namespace, EncoderInput):
            raise SessionError("a sequence of an encoder-decoder model was opened without a source")
        return DecoderSlot(self, namespace)

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """Append tokens to one sequence; after an error it is empty."""
        [span], [slot] = spans, self._slots_of(spans, DecoderSlot, self)
        if self.holder is not slot:
            self.take_over(slot, ())
        size = len(span.tokens)
        with self._renewed_by_errors():
            if self._hidden is None:
                self._source, self._hidden = slot.namespace, self.encoder.encode(slot.namespace)
                # A copy in the request's own tensor: in bf16 the CPU plugin keeps reading the
                # memory of the first source, whatever tensor is set.
                tensor = self._request.get_tensor(HIDDEN_STATES)
                tensor.shape = self._hidden.shape
                tensor.data[:] = self._hidden
            feed = decoder_inputs(span.tokens, self.length, self._hidden)
            feed[LOGITS_INDICES] = np.arange(size - span.num_rows, size)
            self._request.infer(
                {name: feed[name] for name in self._inputs}, share_inputs=True, share_outputs=True
            )
            self.length += size
        logits: Logits = self._request.get_tensor("logits").data
        return [logits[0, -span.num_rows :, : self._vocab_size]]

    def take_over(self, slot: "DecoderSlot", tokens: Sequence[int]) -> int:
        """Give a sequence the states, with the prefix of these tokens that was left for it."""
        length = 0
        if self._source == slot.namespace:
            length = common_prefix(self.left, tokens)
            self.trim(length)
        else:
            self._request.reset_state()
            self._forget()
        self.holder, self.left = slot, ()
        return length

    def trim(self, length: int) -> None:
        """Drop all but the first `length` tokens from the growing states."""
        if length == self.length:
            return
        with self._renewed_by_errors():
            for state in self._request.query_state():
                if state.name in self._axes:
                    axis = self._axes[state.name]
                    state.state = ov.Tensor(state.state.data.take(range(length), axis))
            self.length = length

    def _forget(self) -> None:
        self._source, self._hidden, self.length = None, None, 0
        self.holder, self.left = None, ()

    @contextmanager
    def _renewed_by_errors(self) -> Iterator[None]:
        """Make a new request after an error: the effects of a failed pass outlive a reset."""
        try:
            yield
        except BaseException:
            self._request = self._compiled.create_infer_request()
            self._forget()
            raise


class DecoderSlot(Slot):
    """A sequence of an `EncoderDecoderModel`, whose namespace is its source."""

    owner: EncoderDecoderModel
    namespace: EncoderInput

    @property
    def length(self) -> int:
        """Number of its tokens in the states; 0 if another sequence owns them."""
        return self.owner.length if self.owner.holder is self else 0

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """Take over the states, with the prefix of these tokens that was left for this source."""
        return self.owner.take_over(self, tokens)

    def rollback(self, length: int) -> None:
        """Trim the states at once."""
        if self.length:
            self.owner.trim(length)

    def free(self, tokens: Sequence[int] = ()) -> None:
        """Release the states; a later sequence of the source may reuse these tokens."""
        if self.owner.holder is self:
            self.owner.holder, self.owner.left = None, list(tokens)


class Aligner:
    """A decoder without states, compiled for its alignment heads, and the encoder of its sources.

    It is separate from the decoder that generates, whose passes it does not change.
    """

    def __init__(self, compiled: ov.CompiledModel, encoder: Encoder) -> None:
        self._compiled = compiled
        self._encoder = encoder
        self._inputs = frozenset(port.any_name for port in compiled.inputs)

    def weights(self, source: EncoderInput, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Cross-attention of each token to a source, by head: [heads, tokens, positions]."""
        feed = decoder_inputs(tokens, 0, self._encoder.encode(source))
        request = self._compiled.create_infer_request()  # any thread may ask
        request.infer({name: feed[name] for name in self._inputs})
        weights: NDArray[np.float32] = request.get_tensor(ALIGNMENT_WEIGHTS).data[0].copy()
        return weights
