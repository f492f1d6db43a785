"""Session on a paged KV cache: rollback sets a counter and costs nothing."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.cache.blocks import BlockPool, BlockTable
from ov_specdec.cache.session import ROWS, Session, Span, check_room, check_rows, check_tensors
from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits

CACHES = ("key_cache.", "value_cache.")
"""How the names of the inputs begin that hold the KV cache, one of each per layer."""

MAX_FEEDS = 256
"""Layouts of passes whose inputs are kept; to make them anew takes some 30 us."""

INITIAL_TOKENS = 512
"""Room in the block pool before it first grows."""


class PagedModel:
    """A compiled paged model and its block pool; what all of its sequences share.

    Implements `Runner`. The caches lie in host memory, [num_blocks, kv_heads, block_size,
    head_size] each, in whatever element type and layout the plugin chose when it compiled the
    model. The pool grows as its blocks are needed.

    max_length: tokens of one sequence, the model's context. There are blocks for so many, but for
    what `limit` says.
    """

    max_sequences = None

    def __init__(self, compiled: ov.CompiledModel, *, max_length: int, vocab_size: int) -> None:
        self.max_length = max_length
        self.vocab_size = vocab_size
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        ports = {port.any_name: port for port in compiled.inputs}
        self._ports = {name: port for name, port in ports.items() if name.startswith(CACHES)}
        self._inputs = ports.keys() - self._ports.keys()
        # The values are never quantized over the block axis, so their shape tells the block size.
        self.block_size: int = ports["value_cache.0"].partial_shape[2].get_length()
        max_blocks = -(-max_length // self.block_size)
        self.pool = BlockPool(min(-(-INITIAL_TOKENS // self.block_size), max_blocks), max_blocks)
        self._tensors: dict[str, ov.Tensor] = {}
        self._num_blocks = 0  # that the tensors have
        self._feeds: dict[Layout, Feed] = {}
        self._bound: dict[str, ov.Tensor] = {}
        self.fit_caches()

    def limit(self, num_tokens: int) -> None:
        """Have so many tokens at most, in whole blocks, and at least those of the pool as it is."""
        self.pool.max_blocks = max(num_tokens // self.block_size, self.pool.size)
        self.max_length = min(self.max_length, self.pool.max_blocks * self.block_size)

    @property
    def num_free(self) -> int:
        """Tokens that blocks can be had for. See `Runner`."""
        return self.pool.num_available * self.block_size

    @property
    def bytes_per_token(self) -> int:
        """Memory that a token takes, of all layers."""
        num_bytes: int = sum(tensor.byte_size for tensor in self._tensors.values())
        return num_bytes // (self.pool.size * self.block_size)

    def open(self, namespace: Hashable = None) -> "PagedSession":
        """A new sequence, which has no blocks yet."""
        return PagedSession(self, namespace)

    @property
    def caches(self) -> list[str]:
        """The names of the inputs that hold the KV cache."""
        return list(self._ports)

    def run(self, spans: Sequence[Span]) -> list[Logits]:
        """One pass over the spans of `PagedSession`s of this model, packed.

        Logits [num_rows, vocab] of each span, views that the next pass overwrites. After an error
        each sequence holds what it held before.
        """
        tables = [table_of(span.session, self) for span in spans]
        past = [table.length for table in tables]
        try:
            for span, table in zip(spans, tables, strict=True):
                check_room(table.length, len(span.tokens), self.max_length)
                check_rows(span)
                table.append(len(span.tokens))
            self.fit_caches()
            feed = self._feed(tuple((len(span.tokens), span.num_rows) for span in spans))
            feed.fill(spans, past, [table.blocks for table in tables])
            rows = self._infer(feed)
        except BaseException:
            for table, length in zip(tables, past, strict=True):
                table.rollback(length)
            raise
        return [rows[begin:end] for begin, end in feed.rows_of_spans]

    def _feed(self, layout: "Layout") -> "Feed":
        """Inputs for a pass, those of an earlier one of that layout where there was one."""
        if layout not in self._feeds:
            if len(self._feeds) >= MAX_FEEDS:
                self._feeds.clear()
            self._feeds[layout] = Feed(layout)
        return self._feeds[layout]

    def copy_block(self, source: int, target: int) -> None:
        """Make one block hold what another one does."""
        self.fit_caches()
        for name in self._ports:
            blocks = self.blocks_of(name)
            blocks[target] = blocks[source]

    def _infer(self, feed: "Feed") -> Logits:
        """Logits of the rows that the spans want, one span's below the other's."""
        for name in self._inputs:
            if self._bound.get(name) is not feed.tensors[name]:
                self._request.set_tensor(name, feed.tensors[name])
                self._bound[name] = feed.tensors[name]
        try:
            self._request.infer(share_outputs=True)
        except RuntimeError:
            self._renew_request()
            raise
        logits: Logits = self._request.get_tensor("logits").data
        logits = logits.reshape(-1, logits.shape[-1])[:, : self.vocab_size]
        return logits if ROWS in self._inputs else logits[feed.rows]

    def _renew_request(self) -> None:
        """Go on, after an error, with an infer request that has no traces of it."""
        self._request = self._compiled.create_infer_request()
        self._bound.clear()
        for name, tensor in self._tensors.items():
            self._request.set_tensor(name, tensor)

    def blocks_of(self, name: str) -> NDArray[Any]:
        """A cache as it lies in memory, [num_blocks, bytes]; a view."""
        tensor: NDArray[Any] = self._tensors[name].data
        return tensor.reshape(self.pool.size, -1).view(np.uint8)

    def fit_caches(self) -> None:
        """Enlarge the cache tensors when the pool has grown, keeping what they hold."""
        if self._num_blocks == self.pool.size:
            return
        for name, port in self._ports.items():
            old = self._tensors.get(name)
            shape = [self.pool.size, *(axis.get_length() for axis in list(port.partial_shape)[1:])]
            new = ov.Tensor(port.element_type, shape)
            new.data.fill(0)  # stray NaNs in unwritten slots would survive masking
            if old is not None:
                old.copy_to(ov.Tensor(new, [0] * len(shape), list(old.shape)))
            self._tensors[name] = new
            self._request.set_tensor(name, new)
        self._num_blocks = self.pool.size


class PagedSession:
    """One sequence in the caches of a `PagedModel`. Implements `Session`."""

    def __init__(self, model: PagedModel, namespace: Hashable = None) -> None:
        self.runner = model
        self.table = BlockTable(model.pool, model.block_size, namespace)

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return self.table.length

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens: a counter is set."""
        self.table.rollback(length)

    def adopt(self, tokens: Sequence[int]) -> int:
        """Share the blocks that hold the first of these tokens. See `Session`."""
        copied = self.table.adopt(tokens)
        if copied is not None:
            self.runner.copy_block(*copied)
        return self.length

    def settle(self, tokens: Sequence[int], length: int) -> None:
        """Let other sequences share the full blocks of these tokens."""
        self.table.settle(tokens, length)

    def leave(self, tokens: Sequence[int]) -> None:
        """Give the blocks back; until they are needed, their tokens are found in them."""
        self.table.leave(tokens)

    def drop(self) -> None:
        """Give the blocks back; only those that others share are found."""
        self.table.drop()

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """Copies of the sequence's blocks, [num_blocks, bytes] of each cache."""
        return {name: self.runner.blocks_of(name)[self._held()] for name in self.runner.caches}

    def write_kv(self, tensors: Mapping[str, NDArray[Any]], length: int) -> None:
        """Put the blocks of `length` tokens in place of those that the sequence has."""
        self.drop()
        check_room(0, length, self.runner.max_length)
        self.table.append(length)
        self.runner.fit_caches()
        try:
            check_tensors(self.read_kv(), tensors)
        except SessionError:
            self.drop()
            raise
        for name, blocks in tensors.items():
            self.runner.blocks_of(name)[self._held()] = blocks

    def _held(self) -> list[int]:
        """The blocks that hold tokens, in order; the last ones may hold none after a rollback."""
        return self.table.blocks[: -(-self.length // self.runner.block_size)]


def table_of(session: Session, model: PagedModel) -> BlockTable:
    """The block table of a sequence of a model; `SessionError` for one of another model."""
    if not isinstance(session, PagedSession) or session.runner is not model:
        raise SessionError("a pass was asked for over a sequence of another model")
    return session.table


Layout = tuple[tuple[int, int], ...]
"""The tokens of each span of a pass, and the rows of logits that it wants."""


class Feed:
    """The inputs of passes of one layout: allocated once, filled for each pass."""

    def __init__(self, layout: Layout) -> None:
        ends = list(accumulate(tokens for tokens, _ in layout))
        row_ends = list(accumulate(rows for _, rows in layout))
        self.rows_of_spans = list(zip([0, *row_ends[:-1]], row_ends, strict=True))
        """Where the rows of each span begin and end among those of the pass."""
        self.rows = np.concatenate(
            [np.arange(end - rows, end) for end, (_, rows) in zip(ends, layout, strict=True)]
        )
        """The places in the pass whose logits are wanted."""
        self._spans = list(zip([0, *ends[:-1]], ends, strict=True))
        self._arrays: dict[str, NDArray[np.integer]] = {
            "input_ids": np.zeros(ends[-1], np.int64),
            "position_ids": np.zeros(ends[-1], np.int64),
            "past_lens": np.zeros(len(layout), np.int32),
            "subsequence_begins": np.array([0, *ends], np.int32),
            "block_indices_begins": np.zeros(len(layout) + 1, np.int32),
            "max_context_len": np.array(0, np.int32),
            ROWS: self.rows,
        }
        self.tensors = {
            name: ov.Tensor(array, shared_memory=True) for name, array in self._arrays.items()
        }
        self._blocks: list[list[int]] = []

    def fill(self, spans: Sequence[Span], past: Sequence[int], blocks: list[list[int]]) -> None:
        """Set the inputs for spans after `past` cached tokens each, in the blocks of each."""
        longest = 0
        for span, length, (begin, end) in zip(spans, past, self._spans, strict=True):
            total = length + end - begin
            self._arrays["input_ids"][begin:end] = span.tokens
            self._arrays["position_ids"][begin:end] = np.arange(length, total)
            longest = max(longest, total)
        self._arrays["past_lens"][:] = past
        self._arrays["max_context_len"][...] = longest
        if self._blocks != blocks:
            self._blocks = [own.copy() for own in blocks]
            self._arrays["block_indices_begins"][1:] = np.cumsum([len(own) for own in blocks])
            self.tensors["block_indices"] = ov.Tensor(np.concatenate(blocks).astype(np.int32))
