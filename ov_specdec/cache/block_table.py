"""The blocks of one sequence in a paged KV cache. No tensors here."""

from collections.abc import Hashable, Sequence
from contextlib import suppress

from ov_specdec.cache.block_pool import BlockPool, NodeId, Root
from ov_specdec.cache.slot import Slot
from ov_specdec.cache.state_table import StateTable
from ov_specdec.errors import CacheFullError, SessionError


class BlockTable(Slot):
    """The blocks of one sequence, in order, and how many of its tokens they hold.

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
