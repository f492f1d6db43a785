"""`Slot`, the KV cache of one sequence, or `BlockTable`; the namespaces that share prefixes."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ov_specdec.cache.block_pool import BlockPool, NodeId, Root
from ov_specdec.cache.state_table import StateTable
from ov_specdec.errors import CacheFullError, SessionError


class Slot(ABC):
    """The KV cache of one sequence in a model, from `Runner.open`; passes extend it.

    owner: identifies the model. namespace: within which prefixes are shared. has_long_rope: whether
    the sequence is beyond the original context length: see `LongRopeNamespace`.
    """

    def __init__(self, owner: object, namespace: Hashable = None) -> None:
        self.owner = owner
        self.namespace = namespace
        self.has_long_rope = isinstance(namespace, LongRopeNamespace)

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of tokens in the KV cache. `CachedSequence` has their ids."""

    def num_kept(self, tokens: Sequence[int]) -> int:  # noqa: ARG002
        """How many of these tokens `match_prefix` would find, about; 0 where only it can tell."""
        return 0

    @abstractmethod
    def match_prefix(self, tokens: Sequence[int]) -> int:
        """Reuse the cached prefix of these tokens in the namespace. Returns its length.

        The sequence must be empty before.
        """

    @abstractmethod
    def rollback(self, length: int) -> None:
        """Drop all but the first `length` tokens, of which there are as many or more.

        A model with recurrent layers may roll back further, to its last kept state; the length then
        says how far, and the rest is recomputed.
        """

    def commit(self, tokens: Sequence[int], length: int) -> None:  # noqa: B027
        """Share the first `length` tokens of the cache, which will not be rolled back."""

    @abstractmethod
    def free(self, tokens: Sequence[int] = ()) -> None:
        """Empty the sequence, and keep these tokens as a cached prefix of the namespace.

        They include all committed tokens, or are empty: then only already shared tokens stay.
        """


class BlockTable(Slot):
    """The blocks of one sequence in a paged KV cache, and how many of its tokens they hold.

    Rollback sets a counter: the blocks stay with the sequence and are overwritten. It cannot go
    behind committed tokens, which other sequences may share. states: of recurrent layers; the table
    then starts and rolls back only to lengths that have a state.
    """

    length: int = 0

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        namespace: Hashable = None,
        states: StateTable | None = None,
    ) -> None:
        super().__init__(pool, namespace)
        self.pool = pool
        self.states = states
        self.blocks: list[int] = []
        self._block_size = block_size
        self._root: Root = (namespace,)
        # The first `_num_committed` blocks are in the prefix cache; the node of the last of them.
        self._num_committed = 0
        self._node: NodeId = self._root
        self._has_prompt = False  # the first commit is that of the prompt

    @property
    def held(self) -> list[int]:
        """The blocks with tokens; after a rollback others may follow."""
        return self.blocks[: -(-self.length // self._block_size)]

    def append(self, num_tokens: int) -> None:
        """Make room for `num_tokens` more and count them as held.

        Raises `CacheFullError`, and then changes nothing.
        """
        held, length = len(self.blocks), self.length + num_tokens
        try:
            while len(self.blocks) * self._block_size < length:
                self.blocks.append(self.pool.allocate())
        except CacheFullError:
            self.pool.release(self.blocks[held:])
            del self.blocks[held:]
            raise
        self.length = length

    def num_kept(self, tokens: Sequence[int]) -> int:
        """See `Slot`."""
        prefix = self.pool.match(tokens, self._block_size, self._root)
        return len(prefix.blocks) * self._block_size + prefix.num_partial

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """Start an empty table with the cached blocks of the first of these tokens.

        If a block matches in part, it is copied, since the sequence goes on to write to it.
        """
        if self.blocks:  # left after a rollback to 0
            self.free()
        prefix = self.pool.match(tokens, self._block_size, self._root)
        if self.states is not None:
            prefix = self.states.match(prefix)
        for block in prefix.blocks:
            self.pool.share(block)
        self.blocks = prefix.blocks
        self.length = len(prefix.blocks) * self._block_size
        self._num_committed, self._node = len(prefix.blocks), prefix.nodes[-1]
        if prefix.partial is not None:
            self.pool.share(prefix.partial)  # or it might be evicted for the copy
            try:
                with suppress(CacheFullError):
                    self.blocks.append(self.pool.allocate())
                    self.pool.copy(prefix.partial, self.blocks[-1])
                    self.length += prefix.num_partial
            finally:
                self.pool.release([prefix.partial])
        return self.length

    def rollback(self, length: int) -> None:
        """Keep only the first `length` tokens, or fewer if there is no state at that length.

        Raises `SessionError` if later tokens were committed; with states, the table is then empty.
        """
        if self.states is not None:
            length = self.states.rollback(length)
            if length < self._num_committed * self._block_size:
                self.states.free(forgets=False)
                self.pool.release(self._clear())
                return
        if length < self._num_committed * self._block_size:
            raise SessionError(
                f"cannot roll back to {length}: other sequences may use the first "
                f"{self._num_committed * self._block_size} tokens; free this one and begin again"
            )
        self.length = length

    def commit(self, tokens: Sequence[int], length: int) -> None:
        """Share the full blocks of the first `length` tokens; rollback can no longer reach them."""
        size = self._block_size
        while (self._num_committed + 1) * size <= length:
            start = self._num_committed * size
            block = self.blocks[self._num_committed]
            self._node = self.pool.register(block, self._node, tokens[start : start + size])
            self._num_committed += 1
            if self.states is not None:
                self.states.register_branch(start + size, self._node)
        if self.states is not None:
            if not self._has_prompt:
                self.states.register(self._num_committed * size, self._node)
            self.states.commit(length)
        self._has_prompt = True

    def free(self, tokens: Sequence[int] = ()) -> None:
        """Free all blocks, and cache those of `tokens`, a partial last block included.

        Other blocks without users leave the prefix cache.
        """
        self.commit(tokens, len(tokens))
        if self.states is not None:
            self.states.register(self._num_committed * self._block_size, self._node)
            self.states.free(forgets=not tokens)
        rest = tokens[self._num_committed * self._block_size : self.length]
        if rest:
            self.pool.register(self.blocks[self._num_committed], self._node, rest)
        blocks = self._clear()
        self.pool.release(blocks)
        self.pool.forget(blocks[-(-len(tokens) // self._block_size) :])

    def _clear(self) -> list[int]:
        blocks, self.blocks = self.blocks, []
        self.length = 0
        self._num_committed, self._node = 0, self._root
        self._has_prompt = False
        return blocks


@dataclass(frozen=True)
class LongRopeNamespace:
    """The namespace of sequences beyond the original context length (LongRoPE).

    Such a sequence uses the long rotary factors from its first token on, others the short ones.
    When a sequence exceeds that length, its KV cache is recomputed. Separate namespaces keep caches
    with one kind of factors from being found with the other; those up to it have `namespace`.
    Source: Ding et al. (arXiv 2402.13753), as in Phi-3 and its successors.
    """

    namespace: Hashable = None


@dataclass(frozen=True)
class EncoderInput:
    """The source of sequences of an encoder-decoder model, which is their namespace.

    values: ids [1, tokens] of a text, or features [1, bins, frames] of a recording. namespace: of
    its tenant. Inputs with equal values and namespace are equal, and share caches.
    """

    values: NDArray[Any] = field(compare=False, repr=False)
    namespace: Hashable = None
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        described = f"{self.values.dtype} {self.values.shape}".encode()
        digest = hashlib.sha256(described + self.values.tobytes())
        object.__setattr__(self, "digest", digest.digest())

    @property
    def ids(self) -> list[int]:
        """The ids of a text; empty for a recording."""
        is_text = np.issubdtype(self.values.dtype, np.integer)
        return self.values[0].tolist() if is_text else []
