"""Session on a paged KV cache: rollback sets a counter and costs nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.cache.blocks import BlockPool, BlockTable
from ov_specdec.cache.session import ROWS, check_room, check_tensors, count_rows
from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits

CACHES = ("key_cache.", "value_cache.")
"""How the names of the inputs begin that hold the KV cache, one of each per layer."""

INITIAL_TOKENS = 512
"""Room in the block pool before it first grows."""


class PagedModel:
    """A compiled paged model and its block pool; what all of its sequences share.

    The caches lie in host memory, [num_blocks, kv_heads, block_size, head_size] each, in whatever
    element type and layout the plugin chose when it compiled the model.

    max_length: tokens of one sequence, the model's context. max_sequences: sequences of that length
    that there may be blocks for; the pool grows to them as they are needed.
    """

    def __init__(
        self,
        compiled: ov.CompiledModel,
        *,
        max_length: int,
        vocab_size: int,
        max_sequences: int = 1,
    ) -> None:
        self.max_length = max_length
        self.vocab_size = vocab_size
        self._request = compiled.create_infer_request()
        ports = {port.any_name: port for port in compiled.inputs}
        self._ports = {name: port for name, port in ports.items() if name.startswith(CACHES)}
        self._inputs = ports.keys() - self._ports.keys()
        # The values are never quantized over the block axis, so their shape tells the block size.
        self.block_size = ports["value_cache.0"].partial_shape[2].get_length()
        max_blocks = max_sequences * -(-max_length // self.block_size)
        self.pool = BlockPool(min(-(-INITIAL_TOKENS // self.block_size), max_blocks), max_blocks)
        self._tensors: dict[str, ov.Tensor] = {}
        self._bound: dict[str, ov.Tensor] = {}
        self.fit_caches()

    @property
    def caches(self) -> list[str]:
        """The names of the inputs that hold the KV cache."""
        return list(self._ports)

    def infer(self, feed: dict[str, ov.Tensor]) -> Logits:
        """Run one pass; logits [tokens, vocab]."""
        self.fit_caches()
        for name in self._inputs:
            if self._bound.get(name) is not feed[name]:
                self._request.set_tensor(name, feed[name])
                self._bound[name] = feed[name]
        self._request.infer(share_outputs=True)
        logits: Logits = self._request.get_tensor("logits").data
        return logits.reshape(-1, logits.shape[-1])[:, : self.vocab_size]

    def blocks_of(self, name: str) -> NDArray[Any]:
        """A cache as it lies in memory, [num_blocks, bytes]; a view."""
        tensor: NDArray[Any] = self._tensors[name].data
        return tensor.reshape(self.pool.size, -1).view(np.uint8)

    def fit_caches(self) -> None:
        """Enlarge the cache tensors when the pool has grown, keeping what they hold."""
        for name, port in self._ports.items():
            old = self._tensors.get(name)
            if old is not None and old.shape[0] == self.pool.size:
                continue
            shape = [self.pool.size, *(axis.get_length() for axis in list(port.partial_shape)[1:])]
            new = ov.Tensor(port.element_type, shape)
            new.data.fill(0)  # stray NaNs in unwritten slots would survive masking
            if old is not None:
                old.copy_to(ov.Tensor(new, [0] * len(shape), list(old.shape)))
            self._tensors[name] = new
            self._request.set_tensor(name, new)


class PagedSession:
    """One sequence in the caches of a `PagedModel`. Implements `Session`."""

    def __init__(self, model: PagedModel) -> None:
        self._model = model
        self._table = BlockTable(model.pool, model.block_size)
        self._feeds: dict[tuple[int, int], Feed] = {}

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return self._table.length

    @property
    def max_length(self) -> int:
        """Number of tokens that the cache can hold."""
        return self._model.max_length

    def forward(self, tokens: Sequence[int], num_rows: int | None = None) -> Logits:
        """Append `tokens`; logits [num_rows, vocab], a view that the next pass overwrites."""
        past, num_tokens = self.length, len(tokens)
        check_room(past, num_tokens, self.max_length)
        size = num_tokens, count_rows(num_tokens, num_rows)
        self._table.append(num_tokens)
        if size not in self._feeds:
            self._feeds[size] = Feed(*size)
        feed = self._feeds[size]
        feed.fill(tokens, past, self._table.blocks)
        try:
            return self._model.infer(feed.tensors)[-size[1] :]
        except BaseException:
            self._table.rollback(past)
            raise

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens: a counter is set."""
        self._table.rollback(length)

    def reset(self) -> None:
        """Forget everything and give the blocks back."""
        self._table.clear()

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """Copies of the sequence's blocks, [num_blocks, bytes] of each cache."""
        return {name: self._model.blocks_of(name)[self._held()] for name in self._model.caches}

    def write_kv(self, tensors: Mapping[str, NDArray[Any]], length: int) -> None:
        """Put the blocks of `length` tokens in place of those that the sequence has."""
        self.reset()
        check_room(0, length, self.max_length)
        self._table.append(length)
        self._model.fit_caches()
        try:
            check_tensors(self.read_kv(), tensors)
        except SessionError:
            self.reset()
            raise
        for name, blocks in tensors.items():
            self._model.blocks_of(name)[self._held()] = blocks

    def _held(self) -> list[int]:
        """The blocks that hold tokens, in order; the last ones may hold none after a rollback."""
        return self._table.blocks[: -(-self.length // self._model.block_size)]


class Feed:
    """The inputs of passes over a given number of tokens: allocated once, filled for each pass.

    num_rows: logits are computed for the last so many of them.
    """

    def __init__(self, num_tokens: int, num_rows: int) -> None:
        self._num_tokens = num_tokens
        self._arrays: dict[str, NDArray[np.integer]] = {
            "input_ids": np.zeros(num_tokens, np.int64),
            "position_ids": np.zeros(num_tokens, np.int64),
            "past_lens": np.zeros(1, np.int32),
            "subsequence_begins": np.array([0, num_tokens], np.int32),
            "block_indices_begins": np.zeros(2, np.int32),
            "max_context_len": np.array(0, np.int32),
            ROWS: np.arange(num_tokens - num_rows, num_tokens),
        }
        self.tensors = {
            name: ov.Tensor(array, shared_memory=True) for name, array in self._arrays.items()
        }
        self._blocks: list[int] = []

    def fill(self, tokens: Sequence[int], past: int, blocks: list[int]) -> None:
        """Set the inputs for `tokens` after `past` cached ones, in the blocks of the sequence."""
        total = past + self._num_tokens
        self._arrays["input_ids"][:] = tokens
        self._arrays["position_ids"][:] = np.arange(past, total)
        self._arrays["past_lens"][0] = past
        self._arrays["max_context_len"][...] = total
        if self._blocks != blocks:
            self._blocks = blocks.copy()
            self._arrays["block_indices_begins"][1] = len(blocks)
            self.tensors["block_indices"] = ov.Tensor(np.array(blocks, np.int32))
