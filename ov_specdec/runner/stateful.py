"""Runner on the KV states of an IR as exported: rollback masks entries, and trims rarely."""

from collections.abc import Hashable, Mapping, Sequence

import openvino as ov

from ov_specdec.runner.base import Span, state_sizes
from ov_specdec.runner.state_batch import BatchedModel, StateBatch, StatefulSlot
from ov_specdec.sampling.logits import Logits

MAX_MASKED = 128
"""Maximum stale cache entries that stay masked before a trim."""

MAX_PADDED = 2
"""Maximum ratio of lengths of prompts that share a pass."""


class StatefulModel(BatchedModel):
    """A compiled stateful model.

    Sequences after their prefill share the states of one infer request, one row each, so that a
    pass reads the weights once for all of them: see `StateBatch`. Prefills have separate batches,
    because all other rows would be padded to their length; then their states are copied.

    Trimming the KV states through `query_state()` copies them whole, which can cost as much as a
    forward pass. So `rollback` only masks stale entries (positions count visible ones), and states
    are trimmed once more than `max_masked` entries are stale in all rows. `max_masked=0` trims at
    every rollback, for models in which masked entries leave traces; they run one sequence at a
    time.

    shares_states: sequences may share an infer request. A GPU does not run states that were set
    before the first pass or that lost rows, so it runs one sequence at a time too.

    Sequences beyond the original context length have separate batches.

    is_recurrent: it has recurrent states too, which fold all tokens and cannot be rolled back. It
    then verifies no draft tokens, runs one sequence at a time, and recomputes one that is rolled
    back; a later one continues from its states if it begins with all of its tokens, such as the
    next turn.

    Freed content stays reusable until the next pass of its batch, or until a new batch starts.
    """

    def __init__(
        self,
        compiled: ov.CompiledModel,
        axes: dict[str, int],
        *,
        max_length: int,
        vocab_size: int,
        max_masked: int = MAX_MASKED,
        shares_states: bool = True,
        is_recurrent: bool = False,
        original_context: int | None = None,
    ) -> None:
        self.max_length = max_length
        self.original_context = original_context
        self.hidden_size, self.feature_size = state_sizes(compiled)
        self.axes = axes
        self._compiled = compiled
        self._inputs = frozenset(name for port in compiled.inputs for name in port.names)
        # Rows are padded with masked entries, and reordered by `beam_idx`.
        can_share = shares_states and max_masked > 0 and "beam_idx" in self._inputs
        self.max_sequences = None if can_share and not is_recurrent else 1
        self.is_recurrent = is_recurrent
        self._vocab_size = vocab_size
        self.max_masked = max_masked
        self.batches: list[StateBatch] = []

    @property
    def max_draft_tokens(self) -> int | None:
        """0 with recurrent states, else any number."""
        return 0 if self.is_recurrent else None

    def open(self, namespace: Hashable = None) -> StatefulSlot:
        """A new sequence, which has no row yet."""
        return StatefulSlot(self, namespace)

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """One or several passes, by length. After an error its sequences are empty."""
        slots = self._slots_of(spans, StatefulSlot, self)
        past = [slot.length for slot in slots]
        logits: dict[StatefulSlot, Logits] = {}
        try:
            for group in grouped(dict(zip(slots, spans, strict=True))):
                batch = self._batch_of(list(group))
                batch.trim(self.max_masked)
                num_logits = max(span.num_rows for span in group.values())
                rows = batch.forward(group, num_logits, self.feature_size)
                for slot, span in group.items():
                    logits[slot] = rows[slot.index, -span.num_rows :, : self._vocab_size]
        except BaseException:
            for slot, length in zip(slots, past, strict=True):
                slot.rollback(min(length, slot.length))
            raise
        return [logits[slot] for slot in slots]

    def _batch_of(self, slots: Sequence[StatefulSlot]) -> StateBatch:
        """The batch of all of these sequences, made if needed.

        After their prefill others may share it, with padding.
        """
        rows = [slot for slot in slots if slot.batch is not None]
        batches = {row.batch for row in rows}
        batch = batches.pop() if len(batches) == 1 else None
        if batch is None or not (slots[0].num_committed or set(batch.held) <= set(rows)):
            request = self._compiled.create_infer_request()
            batch = StateBatch(request, self.axes, self._inputs, slots[0].has_long_rope)
            if rows:
                batch.take(rows)
            # Drop batches without sequences first.
            self.batches = [*(other for other in self.batches if other.held), batch]
        for slot in slots:
            if slot.batch is None:
                slot.join(batch)
        return batch


Group = Mapping[StatefulSlot, Span]
"""Spans that share a pass."""


def grouped(spans: Group) -> Sequence[Group]:
    """Groups of sequences that share a pass: all decoding ones, and prompts of similar length.

    Prompts come first, so that they leave the batch of the others. A group has one kind of rotary
    factors.
    """
    groups: list[dict[StatefulSlot, Span]] = []
    for side in (False, True):
        own = [slot for slot in spans if slot.has_long_rope is side]
        prompts = [slot for slot in own if not slot.num_committed]
        shortest = 0
        for slot in sorted(prompts, key=lambda slot: len(spans[slot].tokens)):
            num_tokens = len(spans[slot].tokens)
            if num_tokens > MAX_PADDED * shortest:
                groups.append({})
                shortest = num_tokens
            groups[-1][slot] = spans[slot]
        if others := {slot: spans[slot] for slot in own if slot.num_committed}:
            groups.append(others)
    return groups
