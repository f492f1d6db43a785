"""A batch of sequences in the KV states of one infer request."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.cache.slot import Slot, common_prefix
from ov_specdec.errors import SessionError
from ov_specdec.runner.base import FEATURES, LOGITS_INDICES, LONG, STATES, Runner, Span
from ov_specdec.sampling.logits import Logits


@dataclass(eq=False)
class StateBatch:
    """Sequences whose KV caches share the states of one infer request, [rows, ..., entries, ...].

    A pass appends as many entries to every row as its longest span has tokens. Shorter spans are
    padded on the left, and the mask always hides the padding. So states have more entries than any
    sequence has tokens, until `take` drops those that all rows hide. `beam_idx` removes ended
    rows and adds others: it has, for each row of a pass, the row of the states that it continues.

    axes: the axis of entries in each state, by the state's name. inputs: of the model.
    has_long_rope: whether its sequences are beyond the original context length.
    """

    request: ov.InferRequest
    axes: Mapping[str, int]
    inputs: frozenset[str]
    has_long_rope: bool = False
    rows: list["StatefulSlot"] = field(default_factory=list)
    num_entries: int = 0

    @property
    def held(self) -> list["StatefulSlot"]:
        """The rows in use; others are what freed sequences left."""
        return [row for row in self.rows if row.is_held]

    def trim(self, max_masked: int) -> None:
        """Drop masked entries if there are more than so many beyond the longest sequence."""
        rows = self.held
        if self.num_entries - max(row.length for row in rows) > max_masked:
            self.take(rows)

    def forward(
        self, spans: Mapping["StatefulSlot", Span], num_logits: int, feature_size: int | None = None
    ) -> Logits:
        """Append tokens to some of the rows, and drop rows that are not in use.

        Logits [rows, num_logits, vocab] of the last positions, in the order of `rows`; a view that
        the next pass overwrites. It fills the hidden states of spans. feature_size: see `Runner`.
        """
        rows, width = self.held, max(len(span.tokens) for span in spans.values())
        total = self.num_entries + width
        ids, positions = np.zeros((2, len(rows), width), np.int64)
        mask = np.zeros((len(rows), total), np.int64)
        features = np.zeros((len(rows), width, feature_size or 0), np.float32)
        sizes = [len(spans[row].tokens) if row in spans else 0 for row in rows]
        for i, (row, size) in enumerate(zip(rows, sizes, strict=True)):
            mask[i, : self.num_entries] = row.mask
            if size:
                ids[i, -size:] = spans[row].tokens
                mask[i, -size:] = 1
                positions[i, -size:] = np.arange(row.length, row.length + size)
                if (given := spans[row].features) is not None:
                    features[i, -size:] = given
        continued = [row.index for row in rows] if self.num_entries else range(len(rows))
        feed = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": positions,
            "beam_idx": np.array(continued, np.int32),
            LOGITS_INDICES: np.arange(width - num_logits, width),
            LONG: np.array(self.has_long_rope),
            FEATURES: features,
        }
        with self._emptied_by_errors():
            inputs = {name: array for name, array in feed.items() if name in self.inputs}
            self.request.infer(inputs, share_inputs=True, share_outputs=True)
            for i, (row, size) in enumerate(zip(rows, sizes, strict=True)):
                row.index, row.mask = i, mask[i]
                row.length += size
                if size and (taken := spans[row].hidden_states) is not None:
                    taken[:] = self.request.get_tensor(STATES).data[i, -size:]
            self.rows, self.num_entries = rows, total
        logits: Logits = self.request.get_tensor("logits").data
        return logits[:, -num_logits:]

    def take(self, rows: Sequence["StatefulSlot"]) -> None:
        """Replace the content by these rows, of this batch or others, without masked entries.

        They are padded on the left to the longest one.
        """
        num_entries = max(row.length for row in rows)
        visible = [np.flatnonzero(row.mask) for row in rows]
        batches = {row: row.held_in for row in rows}
        states = {batches[row]: batches[row].states() for row in rows if row.length}
        with self._emptied_by_errors():
            for name, state in self.states().items() if states else ():
                axis = self.axes[name]
                old = {batch: own[name].state.data for batch, own in states.items()}
                shape = list(next(iter(old.values())).shape)
                shape[0], shape[axis] = len(rows), num_entries
                new = np.zeros(shape, next(iter(old.values())).dtype)
                for i, row in enumerate(rows):
                    if row.length:
                        kept = np.moveaxis(old[batches[row]], axis, 1)[row.index, visible[i]]
                        np.moveaxis(new, axis, 1)[i, num_entries - row.length :] = kept
                state.state = ov.Tensor(new)
        for batch in set(batches.values()):
            batch.rows = [row for row in batch.rows if row not in rows]
        self.rows, self.num_entries = list(rows), num_entries
        for i, row in enumerate(rows):
            row.batch, row.index = self, i
            row.mask = (np.arange(num_entries) >= num_entries - row.length).astype(np.int64)

    def states(self) -> dict[str, Any]:
        """The states with entries, by name; reading one copies it."""
        return {s.name: s for s in self.request.query_state() if s.name in self.axes}

    def clear(self) -> None:
        """Drop all tokens; rows in use become empty."""
        self.request.reset_state()
        self.rows, self.num_entries = self.held, 0
        for row in self.rows:
            row.mask, row.length, row.num_committed = np.zeros(0, np.int64), 0, 0

    @contextmanager
    def _emptied_by_errors(self) -> Iterator[None]:
        """Drop everything after an error: the layers' states may differ in length."""
        try:
            yield
        except BaseException:
            self.clear()
            raise


class BatchedModel(Runner):
    """A model whose sequences are rows of its batches: see `StatefulModel`."""

    batches: list[StateBatch]
    max_masked: int
    is_recurrent: bool


class StatefulSlot(Slot):
    """A sequence of a `StatefulModel`: a row of a batch from the first pass on.

    index: of the row of the last pass's states that it continues; several may share one.
    mask: [entries of the batch], 1 for its tokens, in order. num_committed: length of its prefix
    `tokens` that other sequences of the namespace may reuse. is_held: False for what a freed
    sequence left.
    """

    owner: BatchedModel
    batch: StateBatch | None = None
    index: int = 0
    mask: NDArray[np.int64]
    length: int = 0
    tokens: Sequence[int] = ()
    num_committed: int = 0
    is_held: bool = True

    @property
    def held_in(self) -> StateBatch:
        """Its batch; raises `SessionError` without one."""
        if self.batch is None:
            raise SessionError("the sequence has no row in a batch")
        return self.batch

    def join(self, batch: StateBatch) -> None:
        """Become a row of a batch, without tokens."""
        self.batch, self.index = batch, 0
        self.mask = np.zeros(batch.num_entries, np.int64)
        batch.rows.append(self)

    def num_kept(self, tokens: Sequence[int]) -> int:
        """See `Slot`."""
        return max([self._num_shared(row, tokens) for row in self._rows], default=0)

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """Continue from the row with the longest common prefix."""
        self.free()
        rows = self._rows
        shared = [self._num_shared(row, tokens) for row in rows]
        if length := max(shared, default=0):
            row = rows[shared.index(length)]
            self.join(row.held_in)
            self.index, self.mask = row.index, row.mask.copy()
            self._keep(length)
        return length

    def rollback(self, length: int) -> None:
        """Drop all but the first `length` tokens: mask the rest, trim if much is masked."""
        if length == 0 or (self.owner.is_recurrent and length < self.length):
            self.free()
        elif length < self.length:
            self._keep(length)
            self.held_in.trim(self.owner.max_masked)

    def commit(self, tokens: Sequence[int], length: int) -> None:
        """Let other sequences continue from these tokens."""
        self.tokens, self.num_committed = tokens, length

    def free(self, tokens: Sequence[int] = ()) -> None:
        """Leave the batch; these tokens stay reusable while it has the row."""
        if tokens:
            self.rollback(len(tokens))
            self.commit(tokens, len(tokens))
        if self.batch is not None:
            left = copy(self)
            left.is_held = False
            index = self.batch.rows.index(self)
            self.batch.rows[index : index + 1] = [left] if tokens else []
        self.batch, self.length, self.num_committed = None, 0, 0

    @property
    def _rows(self) -> list["StatefulSlot"]:
        return [row for batch in self.owner.batches for row in batch.rows]

    def _num_shared(self, row: "StatefulSlot", tokens: Sequence[int]) -> int:
        """Length of the prefix of these tokens with which it can continue from a row."""
        if row.namespace != self.namespace:
            return 0
        length = common_prefix(row.tokens[: row.num_committed], tokens)
        return length if length == row.length or not self.owner.is_recurrent else 0

    def _keep(self, length: int) -> None:
        """Hide all but the first `length` tokens."""
        self.mask[np.flatnonzero(self.mask)[length:]] = 0
        self.length = length
        self.num_committed = min(self.num_committed, length)
