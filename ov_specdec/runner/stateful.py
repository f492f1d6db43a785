"""Sessions on the KV states of an IR as exported: rollback hides entries, and trims late."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.cache.block_pool import check_rollback
from ov_specdec.cache.longrope import Beyond
from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits
from ov_specdec.runner.base import (
    Session,
    Span,
    check_room,
    check_rows,
    check_tensors,
)
from ov_specdec.runner.state_batch import Batch, Row

MAX_HIDDEN = 128
"""Stale cache entries that are kept, hidden, before they are trimmed for real."""

MAX_PADDED = 2
"""Prompts are read in one pass where none has more than so many times the tokens of another."""


class StatefulModel:
    """A compiled stateful model; what all of its sequences share. Implements `Runner`.

    Sequences that have been read share the states of one infer request, one row each, so that a
    pass reads the weights once for all of them: see `Batch`. Prompts are read in batches of their
    own, or they would have all others padded to their length; then their states are copied.

    Trimming the KV states through `query_state()` copies them whole, which can cost as much as a
    forward pass. So `rollback` only hides what is stale from attention (mask 0; positions go on
    counting what is visible), and the states are trimmed once more than `max_hidden` entries are
    stale in all rows. `max_hidden=0` trims at every rollback, for models that show what is hidden;
    they take one sequence at a time.

    shares_states: sequences may share an infer request. A GPU does not run those whose states were
    set before the first pass, or lose rows: there is one sequence at a time too.

    Sequences beyond the border have batches of their own: nothing brings them into one with others.

    What a sequence leaves is found until the next pass of those that it shared passes with, or
    until others begin a batch.
    """

    num_free = capacity = None
    bytes_per_token = 0
    fixed_sizes: frozenset[int] = frozenset()
    is_invariant = is_proven = False

    def __init__(
        self,
        compiled: ov.CompiledModel,
        axes: dict[str, int],
        *,
        max_length: int,
        vocab_size: int,
        max_hidden: int = MAX_HIDDEN,
        shares_states: bool = True,
        border: int | None = None,
    ) -> None:
        self.max_length = max_length
        self.border = border
        self.axes = axes
        self._compiled = compiled
        self._inputs = frozenset(port.any_name for port in compiled.inputs)
        # Rows are padded with hidden entries, and change their places by `beam_idx`.
        can_share = shares_states and max_hidden > 0 and "beam_idx" in self._inputs
        self.max_sequences = None if can_share else 1
        self._vocab_size = vocab_size
        self._max_hidden = max_hidden
        self._batches: list[Batch] = []

    def limit(self, num_tokens: int) -> None:
        """Do nothing: the device manages the memory."""

    def open(self, namespace: Hashable = None) -> "StatefulSession":
        """A new sequence, which has no row yet."""
        return StatefulSession(self, namespace)

    def run(self, spans: Sequence[Span]) -> list[Logits]:
        """Append tokens to `StatefulSession`s of this model, in as few passes as pays.

        Logits [num_rows, vocab] of each span, views that the next pass overwrites. After an error
        in a pass those that took part in it are empty.
        """
        sessions = [session_of(span.session, self) for span in spans]
        if self.max_sequences is not None and len(spans) > self.max_sequences:
            raise SessionError(
                f"a pass was asked for over {len(spans)} sequences of a model that takes "
                f"{self.max_sequences} at a time"
            )
        past = [session.length for session in sessions]
        for span, length in zip(spans, past, strict=True):
            check_room(length, len(span.tokens), self.max_length)
            check_rows(span)
        logits: dict[StatefulSession, Logits] = {}
        try:
            for group in grouped(dict(zip(sessions, spans, strict=True))):
                logits |= self._run_together(group)
        except BaseException:
            for session, length in zip(sessions, past, strict=True):
                session.rollback(min(length, session.length))
            raise
        return [logits[session] for session in sessions]

    def _run_together(self, spans: "Group") -> dict["StatefulSession", Logits]:
        """One pass over sequences, after bringing them into one batch."""
        batch = self._batch_of(list(spans))
        self.trim(batch)
        rows = {session.held: span for session, span in spans.items()}
        num_logits = max(span.num_rows for span in spans.values())
        logits = batch.run({row: span.tokens for row, span in rows.items()}, num_logits)
        return {
            session: logits[session.held.source, -span.num_rows :, : self._vocab_size]
            for session, span in spans.items()
        }

    def _batch_of(self, sessions: Sequence["StatefulSession"]) -> Batch:
        """The batch that holds all of these sequences, made where there is none.

        Where these have been read, others may share it: they are padded.
        """
        rows = [session.row for session in sessions if session.row is not None]
        batches = {row.batch for row in rows}
        batch = batches.pop() if len(batches) == 1 else None
        if batch is None or not (sessions[0].is_read or set(batch.held) <= set(rows)):
            request = self._compiled.create_infer_request()
            batch = Batch(request, self.axes, self._inputs, sessions[0].is_beyond)
            if rows:
                batch.take(rows)
            # What sequences have left in batches that nobody uses any more makes room.
            self._batches = [*(other for other in self._batches if other.held), batch]
        for session in sessions:
            session.row = session.row or batch.add()
        return batch

    def trim(self, batch: Batch) -> None:
        """Drop hidden entries of a batch where there are many."""
        if batch.num_hidden > self._max_hidden:
            batch.compact()

    def find(self, tokens: Sequence[int], namespace: Hashable) -> tuple[Row | None, int]:
        """The row that shares most of the first of these tokens, and how many it shares."""
        rows = [row for batch in self._batches for row in batch.rows]
        shared = [row.num_shared(tokens, namespace) for row in rows]
        best = max(shared, default=0)
        return (rows[shared.index(best)], best) if best else (None, 0)


class StatefulSession:
    """One sequence in the states of a `StatefulModel`. Implements `Session`."""

    def __init__(self, model: StatefulModel, namespace: Hashable = None) -> None:
        self.runner = model
        self.row: Row | None = None
        self.is_beyond = isinstance(namespace, Beyond)
        self._namespace = namespace

    @property
    def length(self) -> int:
        """Number of visible tokens in the cache."""
        return self.row.length if self.row else 0

    @property
    def held(self) -> Row:
        """Its row, once it takes part in passes."""
        if self.row is None:
            raise SessionError("a sequence takes part in a pass that has no row")
        return self.row

    @property
    def is_read(self) -> bool:
        """Whether its prompt has been read."""
        return self.row is not None and self.row.known > 0

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens: hide the rest, trim when much is hidden."""
        check_rollback(self.length, length)
        if self.row is None or length == self.length:
            return
        if length == 0:
            self.drop()
            return
        self.row.keep(length)
        self.runner.trim(self.row.batch)

    def adopt(self, tokens: Sequence[int]) -> int:
        """Go on from a row that has the first of these tokens. See `Session`."""
        self.drop()
        row, length = self.runner.find(tokens, self._namespace)
        self.row = row.batch.branch(row, length) if row else None
        return length

    def settle(self, tokens: Sequence[int], length: int) -> None:
        """Let other sequences go on from these tokens."""
        row = self.held
        row.namespace, row.tokens, row.known = self._namespace, tokens, length

    def leave(self, tokens: Sequence[int]) -> None:
        """Give the row up; while it lasts, its tokens are found."""
        self.rollback(len(tokens))
        if self.row is not None:
            self.settle(tokens, len(tokens))
            self.row.is_held = False
            self.row = None

    def drop(self) -> None:
        """Give the row up, and leave nothing to others."""
        if self.row is not None:
            self.row.batch.rows.remove(self.row)
            self.row = None

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """Copies of the KV states, what is stale left out."""
        return self.row.batch.read(self.row) if self.row and self.length else {}

    def write_kv(self, tensors: Mapping[str, NDArray[Any]], length: int) -> None:
        """Put the states of `length` tokens in place of those that the sequence has."""
        self.drop()
        check_room(0, length, self.runner.max_length)
        try:
            # States take their shape from a pass: one over any token shows what they look like.
            self.runner.run([Span(self, [0], 1)])
            current = {
                name: np.repeat(state, length, self.runner.axes[name])
                for name, state in self.read_kv().items()
            }
            check_tensors(current, tensors)
            self.row = self.held.batch.write(tensors, length)
        except BaseException:
            self.drop()
            raise


Group = Mapping[StatefulSession, Span]
"""Spans that share a pass."""


def grouped(spans: Group) -> Sequence[Group]:
    """Sequences that share a pass: all that have been read, and prompts of similar length.

    Prompts come first, so that they leave the batch of the others. All of a group are on one side
    of the border.
    """
    sides = [
        {session: span for session, span in spans.items() if session.is_beyond is side}
        for side in (False, True)
    ]
    return [group for own in sides if own for group in _grouped_by_length(own)]


def _grouped_by_length(spans: Group) -> Sequence[Group]:
    groups: list[dict[StatefulSession, Span]] = []
    reading = [session for session in spans if not session.is_read]
    shortest = 0
    for session in sorted(reading, key=lambda session: len(spans[session].tokens)):
        num_tokens = len(spans[session].tokens)
        if not groups or num_tokens > MAX_PADDED * shortest:
            groups.append({})
            shortest = num_tokens
        groups[-1][session] = spans[session]
    if read := {session: span for session, span in spans.items() if session.is_read}:
        groups.append(read)
    return groups


def session_of(session: Session, model: StatefulModel) -> StatefulSession:
    """A sequence of a model; `SessionError` for one of another model."""
    if not isinstance(session, StatefulSession) or session.runner is not model:
        raise SessionError("a pass was asked for over a sequence of another model")
    return session
