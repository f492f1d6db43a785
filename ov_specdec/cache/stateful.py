"""Session on the KV states of an IR as exported: rollback hides entries, and trims late."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.baseline import common_prefix
from ov_specdec.cache.session import (
    ROWS,
    Span,
    check_rollback,
    check_room,
    check_rows,
    check_tensors,
)
from ov_specdec.logits import Logits

MAX_HIDDEN = 128
"""Stale cache entries that are kept, hidden, before they are trimmed for real."""


class StatefulModel:
    """A compiled stateful model, used for one sequence. Implements `Runner` and `Session`.

    Trimming the KV states through `query_state()` copies them whole, which can cost as much as a
    forward pass. So `rollback` only hides what is stale from attention (mask 0; positions go on
    counting what is visible), and the states are trimmed once more than `max_hidden` entries are
    stale. `max_hidden=0` trims at every rollback.
    """

    def __init__(
        self,
        compiled: ov.CompiledModel,
        axes: dict[str, int],
        *,
        max_length: int,
        vocab_size: int,
        max_hidden: int = MAX_HIDDEN,
    ) -> None:
        self._request = compiled.create_infer_request()
        self._axes = axes
        self._inputs = {port.any_name for port in compiled.inputs}
        self._max_length = max_length
        self._vocab_size = vocab_size
        self._max_hidden = max_hidden
        self._length = 0
        # What the sequence before has left; nobody's while another one has not adopted it.
        self._left: list[int] = []
        self._left_in: Hashable = None
        # One entry per token in the KV states, in order: 1 visible, 0 stale.
        self._mask: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def length(self) -> int:
        """Number of visible tokens in the cache."""
        return 0 if self._left else self._length

    max_sequences = 1
    admits_in_flight = False
    num_free = None
    bytes_per_token = 0

    def limit(self, num_tokens: int) -> None:
        """Nothing."""

    @property
    def runner(self) -> "StatefulModel":
        return self

    def open(self, namespace: Hashable = None) -> "StatefulModel":
        self.namespace = namespace
        return self

    @property
    def max_length(self) -> int:
        """Number of tokens that the cache can hold."""
        return self._max_length

    def run(self, spans: Sequence[Span]) -> list[Logits]:
        """Append `tokens`; logits [num_rows, vocab], a view that the next pass overwrites."""
        if self._left:
            self.reset()
        [span] = spans
        tokens, rows = span.tokens, span.num_rows
        num_tokens = len(tokens)
        check_room(self._length, num_tokens, self._max_length)
        check_rows(span)
        mask = np.concatenate([self._mask, np.ones(num_tokens, np.int64)])
        feed = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": mask[None],
            "position_ids": np.arange(self._length, self._length + num_tokens)[None],
            "beam_idx": np.zeros(1, np.int32),
            ROWS: np.arange(num_tokens - rows, num_tokens),
        }
        with self._emptied_by_errors():
            self._request.infer(
                {name: feed[name] for name in self._inputs}, share_inputs=True, share_outputs=True
            )
        self._mask = mask
        self._length += num_tokens
        logits: Logits = self._request.get_tensor("logits").data
        return [logits[0, -rows:, : self._vocab_size]]

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens: hide the rest, trim when much is hidden."""
        check_rollback(self._length, length)
        if length == self._length:
            return
        if length == 0:
            self.reset()
            return
        visible = np.flatnonzero(self._mask)
        self._mask[visible[length:]] = 0
        self._length = length
        if len(self._mask) - length > self._max_hidden:
            self._trim()

    def reset(self) -> None:
        """Forget everything."""
        self._request.reset_state()
        self._mask = np.zeros(0, np.int64)
        self._length = 0
        self._left = []

    def adopt(self, tokens: Sequence[int]) -> int:
        """Hold the first of these tokens that the sequence before has left. See `Session`."""
        kept, self._left = common_prefix(self._left, tokens), []
        kept = kept if self._left_in == self.namespace else 0
        self.rollback(kept)
        return kept

    def settle(self, tokens: Sequence[int], length: int) -> None:
        """Nothing to do: nobody shares these states."""

    def leave(self, tokens: Sequence[int]) -> None:
        """Keep these tokens for the next sequence, in case that it begins likewise."""
        self.rollback(len(tokens))
        self._left = list(tokens)
        self._left_in = self.namespace

    def drop(self) -> None:
        self.reset()

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """Copies of the KV states, what is stale left out."""
        if len(self._mask) > self._length:
            self._trim()
        if self._length == 0:  # the states have no values yet
            return {}
        return {state.name: state.state.data.copy() for state in self._request.query_state()}

    def write_kv(self, tensors: Mapping[str, NDArray[Any]], length: int) -> None:
        """Put the states of `length` tokens in place of those that the request has."""
        self.reset()
        check_room(0, length, self._max_length)
        # States take their shape from a pass: one over any token shows what they look like.
        self.run([Span(self, [0], 1)])
        current = {
            name: np.repeat(state, length, axis=self._axes[name])
            for name, state in self.read_kv().items()
        }
        self.reset()
        check_tensors(current, tensors)
        with self._emptied_by_errors():
            for state in self._request.query_state():
                state.state = ov.Tensor(tensors[state.name])
        self._mask = np.ones(length, np.int64)
        self._length = length

    @contextmanager
    def _emptied_by_errors(self) -> Iterator[None]:
        """Forget everything after an error: the layers' states may then differ in length."""
        try:
            yield
        except BaseException:
            self.reset()
            raise

    def _trim(self) -> None:
        """Drop the hidden entries from the KV states."""
        visible = np.flatnonzero(self._mask)
        with self._emptied_by_errors():
            for state in self._request.query_state():
                kept = np.take(state.state.data, visible, axis=self._axes[state.name])
                state.state = ov.Tensor(kept)
        self._mask = np.ones(len(visible), np.int64)
