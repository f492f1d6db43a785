"""Runner on a paged KV cache, where a sequence has a table of blocks: rollback sets a counter."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.cache.block_pool import BlockPool
from ov_specdec.cache.block_table import BlockTable
from ov_specdec.cache.slot import Slot
from ov_specdec.cache.state_table import (
    LEAST_STATES,
    SPARE,
    ZEROS,
    StatePool,
    StateSpan,
    StateTable,
)
from ov_specdec.errors import CacheFullError
from ov_specdec.runner.base import Runner, Span, check_room, require_own, state_sizes
from ov_specdec.runner.block_memory import BlockMemory, CacheTensor, HostMemory, bytes_of_block
from ov_specdec.runner.packed import Form, PackedModel
from ov_specdec.sampling.logits import Logits

CACHES = ("key_cache.", "value_cache.")
"""Prefixes of the inputs of the KV cache, one of each per layer."""

RECURRENT = ("conv_state_table.", "gated_delta_state_table.")
"""The same of recurrent states, [num_states, ...]; a layer has one or both. OpenVINO's operations
read the state before a pass from the first given block of a sequence, and write states after its
tokens to the others."""

NUM_STATES = 64
"""Default number of recurrent states."""


class SpanPart(NamedTuple):
    """Some tokens of a span that attention takes for one sequence, after `past` others."""

    past: int
    table: BlockTable
    span: Span


def split(part: SpanPart) -> list[SpanPart]:
    """The tokens of the prompt together, and each generated one by itself."""
    size = len(part.span.tokens)
    ends = range(size - part.span.num_generated or 1, size + 1)
    if len(ends) == 1:
        return [part]
    return [part_of(part, begin, end) for begin, end in pairwise([0, *ends])]


def part_of(part: SpanPart, begin: int, end: int) -> SpanPart:
    """The part with some of the tokens."""
    span = part.span
    size, before = end - begin, len(span.tokens) - end
    own = span._replace(
        tokens=span.tokens[begin:end],
        num_rows=min(max(span.num_rows - before, 0), size),
        num_generated=min(max(span.num_generated - before, 0), size),
        hidden_states=None if span.hidden_states is None else span.hidden_states[begin:end],
        features=None if span.features is None else span.features[begin:end],
    )
    return SpanPart(part.past + begin, part.table, own)


def divide(parts: Sequence[SpanPart], most: int | None) -> list[list[SpanPart]]:
    """Divide parts into passes over at most `most` tokens each, in order. most: None for any.

    Those with several tokens are cut into such, as attention sums single queries differently. With
    an f32 cache, a generated token does not find the prompt before it in its own pass.
    """
    passes, taken = list[list[SpanPart]](), list[SpanPart]()
    room = most = most or sum([len(part.span.tokens) for part in parts])
    for part in parts:
        begin, num_tokens = 0, len(part.span.tokens)
        while begin < num_tokens:
            left = num_tokens - begin
            size = left if left <= room else min(room, left - 2)
            is_prompts = taken and taken[-1].table is part.table and part.span.num_generated
            if size < min(left, 2) or (is_prompts and not taken[-1].span.num_generated):
                passes.append(taken)
                taken, room = [], most
            else:
                is_whole = size == num_tokens
                taken.append(part if is_whole else part_of(part, begin, begin + size))
                begin, room = begin + size, room - size
    return [*passes, taken] if taken else passes


class SpareTable(BlockTable):
    """Rows that pad a pass, in the block after those of the pool, which no sequence owns.

    It holds no token, whatever is appended.
    """

    def append(self, num_tokens: int) -> None:
        """Have the block for each of the tokens."""
        num_blocks = -(-num_tokens // self._block_size)
        self.blocks = [self.pool.size] * max(num_blocks, len(self.blocks))


class PagedModel(Runner):
    """A compiled paged model and its block pool. A sequence's slot is its `BlockTable`.

    memory: of its blocks. max_length: without `limit` of all sequences together too. is_invariant:
    run passes in the batch-invariant form, where attention over a single query must not meet one
    over several, as they sum in a different order: generated tokens are always single, and those of
    a prompt never; with recurrent layers, which have one state for a sequence, single tokens are
    repeated. original_context: the model then has the input `LONG`.
    """

    spare: SpareTable

    def __init__(
        self,
        compiled: ov.CompiledModel,
        *,
        max_length: int,
        vocab_size: int,
        memory: BlockMemory | None = None,
        is_invariant: bool = False,
        original_context: int | None = None,
    ) -> None:
        self.max_length = max_length
        self.original_context = original_context
        self.vocab_size = vocab_size
        self.hidden_size, self.feature_size = state_sizes(compiled)
        self.is_invariant = is_invariant
        self._model = PackedModel(compiled)
        self._static: dict[int, PackedModel] = {}
        ports = {name: port for port in compiled.inputs for name in port.names}
        self._ports = {name: port for name, port in ports.items() if name.startswith(CACHES)}
        self._state_ports = {n: port for n, port in ports.items() if n.startswith(RECURRENT)}
        self.bytes_per_state = sum(map(bytes_of_block, self._state_ports.values()))
        self._states = StatePool(NUM_STATES) if self._state_ports else None
        self.separates_generated = is_invariant and self._states is None
        self._state_memory = HostMemory()
        # The values are never quantized over the block axis, so their shape has the block size.
        self.block_size: int = ports["value_cache.0"].partial_shape[2].get_length()
        self.bytes_per_token = sum(map(bytes_of_block, self._ports.values())) // self.block_size
        self.memory: BlockMemory = memory or HostMemory()
        self.pool = BlockPool(-(-max_length // self.block_size), self.memory.copy)
        self.capacity = self.pool.size * self.block_size
        self.spare = SpareTable(self.pool, self.block_size)

    @property
    def static_shapes(self) -> frozenset[int]:
        """Sizes of its static shapes. A padded single token is a pass over two."""
        sizes = frozenset(self._static)
        if not self.is_invariant:
            return sizes
        return sizes | {1} if 2 in sizes else sizes - {1}

    def add_static(self, size: int, compiled: ov.CompiledModel) -> None:
        """Run passes over `size` tokens with this compiled model from now on."""
        model = PackedModel(compiled, size)
        model.use_caches(self._tensors)
        self._static[size] = model

    def drop_static(self, size: int) -> None:
        """Run passes over this number of tokens with the dynamic model again."""
        self._static.pop(size, None)

    def limit(self, num_tokens: int, num_states: int = NUM_STATES) -> None:
        """Set the maximum number of tokens, in whole blocks, before any sequence has some.

        Raises `CacheFullError` if the device has no memory for them.
        """
        self.pool.size = max(num_tokens // self.block_size, 1)
        self.capacity = self.pool.size * self.block_size
        if self._states is not None:
            if num_states < LEAST_STATES:
                raise CacheFullError(
                    f"there is memory for {num_states} recurrent states of {self.bytes_per_state} "
                    "bytes, too few for a sequence: raise {kv_cache_size}, or free some memory",
                    kv_cache_size=...,
                )
            self._states = StatePool(num_states)
        self._allocate()

    @property
    def num_free(self) -> int:
        """Tokens in blocks that can be allocated; 0 without free states."""
        if self._states is not None and not self._states.has_room:
            return 0
        return self.pool.num_available * self.block_size

    @property
    def max_draft_tokens(self) -> int | None:
        """The number that fits the free states."""
        return None if self._states is None else self._states.max_draft_tokens

    def open(self, namespace: Hashable = None) -> BlockTable:
        """Open a new sequence, without blocks."""
        if not self.memory.tensors:
            self._allocate()
        states = None if self._states is None else StateTable(self._states, self.block_size)
        return BlockTable(self.pool, self.block_size, namespace, states)

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """One packed pass over the spans, or several if they exceed `max_pass_tokens`.

        Sequences with different rotary factors have separate passes. After an error each sequence
        is unchanged.
        """
        tables = self._slots_of(spans, BlockTable, self.pool)
        self.spare.has_long_rope = tables[0].has_long_rope  # needs no pass of its own
        wholes = list[SpanPart]()
        try:
            for table, span in zip(tables, spans, strict=True):
                wholes.append(SpanPart(table.length, table, span))
                table.append(len(span.tokens))
            return self._forward_spans(wholes)
        except BaseException:
            for whole in wholes:
                whole.table.rollback(whole.past)
            raise

    def read_kv(self, slot: Slot) -> dict[str, NDArray[Any]]:
        """Copies of the sequence's blocks, [num_blocks, bytes] of each cache."""
        if self._states is not None:
            return super().read_kv(slot)
        table = require_own(slot, BlockTable, self.pool)
        return {name: self.memory.read(name, table.held) for name in self._ports}

    def write_kv(self, slot: Slot, tensors: Mapping[str, NDArray[Any]], length: int) -> None:
        """Replace the sequence's blocks by those of `length` tokens."""
        if self._states is not None:
            super().write_kv(slot, tensors, length)
        table = require_own(slot, BlockTable, self.pool)
        table.free()
        check_room(0, length, self.max_length)
        table.append(length)
        for name in self._ports:
            self.memory.write(name, table.held, tensors[name])

    def _forward_spans(self, wholes: Sequence[SpanPart]) -> list[Logits]:
        """The logits of spans whose tables have room, from one or several passes."""
        # A pass has one kind of rotary factors, the short ones first.
        parts: dict[bool, list[SpanPart]] = {False: [], True: []}
        begins = {False: 0, True: 0}
        for whole in wholes:
            has_long_rope = whole.table.has_long_rope
            parts[has_long_rope] += split(whole) if self.separates_generated else [whole]
            begins[True] += 0 if has_long_rope else whole.span.num_rows
        passes = list[list[SpanPart]]()
        for own in parts.values():
            passes += divide(own, self.max_pass_tokens) if own else []
        if len(passes) == 1:
            rows = self._forward_pass(passes[0])
        else:  # the next pass overwrites the logits of this one
            rows = np.concatenate([self._forward_pass(parts).copy() for parts in passes])
        logits = list[Logits]()
        for whole in wholes:
            begin, num_rows = begins[whole.table.has_long_rope], whole.span.num_rows
            logits.append(rows[begin : begin + num_rows])
            begins[whole.table.has_long_rope] += num_rows
        return logits

    def _forward_pass(self, parts: Sequence[SpanPart]) -> Logits:
        """One pass; the needed rows of its parts, in order."""
        sizes = [len(part.span.tokens) for part in parts]
        repeats_tokens = self.is_invariant and self._states is not None
        if repeats_tokens:
            sizes = [max(size, 2) for size in sizes]
        elif self.is_invariant and sum(sizes) == 1:
            self.spare.append(1)
            spare = [SpanPart(0, self.spare, span) for span in self.padding(1, planned=2)]
            parts, sizes = [*parts, *spare], [1, 1]
        past, tables, spans = zip(*parts, strict=True)
        blocks = [table.blocks for table in tables]
        if repeats_tokens:  # a repeated one may be beyond the blocks of its sequence
            blocks = [[*own, self.pool.size] for own in blocks]
        form = Form(False, self.is_invariant, repeats_tokens, tables[0].has_long_rope)
        states = {} if self._states is None else self._states_of(parts)
        rows = self._static.get(sum(sizes), self._model).forward(spans, past, blocks, form, states)
        return rows[:, : self.vocab_size]

    def _states_of(self, parts: Sequence[SpanPart]) -> dict[str, Sequence[int]]:
        """The inputs of a pass with the blocks of recurrent states."""
        states = [
            StateSpan([ZEROS, *[SPARE] * max(len(span.tokens), 2)], 1)
            if table.states is None
            else table.states.extend(
                past,
                len(span.tokens),
                span.num_rows,
                has_spare_row=self.is_invariant and len(span.tokens) == 1,
            )
            for past, table, span in parts
        ]
        return {
            "la.block_indices": [block for own in states for block in own.blocks],
            "la.block_indices_begins": [0, *accumulate(len(own.blocks) for own in states)],
            "la.past_lens": [part.past for part in parts],
            "la.cache_interval": [own.interval for own in states],
        }

    def _allocate(self) -> None:
        """Allocate all blocks of the pool, a spare one, and those of recurrent states."""
        self.memory.allocate(self._ports, self.pool.size + 1)
        if self._states is not None:
            self._state_memory.allocate(self._state_ports, self._states.blocks.size)
        for model in (self._model, *self._static.values()):
            model.use_caches(self._tensors)

    @property
    def _tensors(self) -> Mapping[str, CacheTensor]:
        return {**self.memory.tensors, **self._state_memory.tensors}
