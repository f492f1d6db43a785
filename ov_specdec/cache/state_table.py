"""Bookkeeping of recurrent states in a paged cache: which block holds which. No tensors here.

Layers with linear attention or convolutions fold all tokens into a state of fixed size. A pass
writes the state after each token that may become the last one to its own block. A rollback selects
another block: nothing is copied or recomputed.
"""

from typing import NamedTuple

from ov_specdec.cache.block_pool import BlockPool, NodeId, Prefix

ZEROS, SPARE = 0, 1
"""Blocks without an owner: the initial state of all sequences, and one for discarded states."""

NUM_OWN = 4
"""States of a sequence besides those after draft tokens: the current one, the one after the next
token, at the end of the last full block, and at the end of the shared prefix."""

LEAST_STATES = NUM_OWN + len((ZEROS, SPARE))
"""Minimum number of blocks."""

MAX_STATE_LAG = 16
"""Maximum tokens before those with rows of logits in a pass that writes the state after each token.
A longer one, such as a prefill, writes states at the ends of blocks only: that takes time."""


class StatePool:
    """The blocks for the states of one model; `num_sequences` of its sequences have some.

    Raises `CacheFullError`, as `BlockPool` does, if all are in use.
    """

    def __init__(self, size: int) -> None:
        self.blocks = BlockPool(size)
        self.num_sequences = 0
        for _ in (ZEROS, SPARE):
            self.blocks.allocate()

    @property
    def size(self) -> int:
        """Blocks for sequences."""
        return self.blocks.size - len((ZEROS, SPARE))

    @property
    def max_draft_tokens(self) -> int:
        """Draft tokens in a pass for each sequence, if one more sequence were admitted."""
        return max(self.size // (self.num_sequences + 1) - NUM_OWN, 0)

    @property
    def has_room(self) -> bool:
        """Whether another sequence has room for a pass without draft tokens."""
        return (self.num_sequences + 1) * NUM_OWN <= self.size


class StateSpan(NamedTuple):
    """State blocks of one sequence in a pass: the one it reads, then those that it writes.

    interval: tokens between written states, counted from the sequence's first token; the last
    state is after the last token in any case.
    """

    blocks: list[int]
    interval: int


class StateTable:
    """The state blocks of one sequence, by the number of tokens in the state.

    A block with a state is not overwritten before it is freed, so sequences with a common prefix
    share it. Shared states belong to ends of full blocks of the KV cache: of the prompt, of the
    finished sequence, and where the prompt left the shared prefix.
    """

    def __init__(self, pool: StatePool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self.states = {0: ZEROS}
        """Blocks by number of tokens."""
        self._branch = 0  # length of the shared prefix, until its state is registered
        self._registered: list[int] = []
        self._is_counted = False

    def extend(
        self, length: int, num_tokens: int, num_rows: int, *, has_spare_row: bool = False
    ) -> StateSpan:
        """Blocks for a pass over tokens after the first `length`.

        num_rows: last tokens before each of which a rollback may end. Of a long prompt only two
        states are kept: at the end of its last full block, and of the whole. Raises
        `CacheFullError` and then changes nothing. has_spare_row: the pass repeats the single token
        as padding.
        """
        end = length + num_tokens
        first = end - max(num_rows, 1)
        interval = self._block_size if num_tokens > num_rows + MAX_STATE_LAG else 1
        if num_tokens > 1:  # a draft model rolls its steps back together
            self.commit(length)
        # The last state may be beyond the end.
        multiples = range(length - length % interval + interval, end + interval, interval)
        written = [min(after, end) for after in multiples]
        needed = {self._last_full(first), self._branch, *range(first, end + 1)}
        new = self._allocate([after for after in written if after in needed])
        blocks = [self.states[length], *(new.get(after, SPARE) for after in written)]
        self.states |= new
        return StateSpan([*blocks, SPARE] if has_spare_row else blocks, interval)

    def rollback(self, length: int) -> int:
        """Drop the states after more tokens. Returns the length of the last remaining state."""
        length = max(kept for kept in self.states if kept <= length)
        self._release([other for other in self.states if other > length])
        return length

    def commit(self, length: int) -> None:
        """Drop states after fewer tokens, except for shared ones."""
        kept = {0, self._last_full(length), self._branch}
        self._release([other for other in self.states if other < length and other not in kept])

    def match(self, prefix: Prefix) -> Prefix:
        """Start with the longest cached prefix that has a state, and return it.

        If a longer prefix is cached, its state is kept for the next sequence with that prefix.
        """
        self._count()
        for num_blocks in range(len(prefix.blocks), 0, -1):
            block = self._pool.blocks.find(prefix.nodes[num_blocks], ())
            if block is not None:
                self._pool.blocks.share(block)
                self.states[num_blocks * self._block_size] = block
                break
        else:
            num_blocks = 0
        is_whole = num_blocks == len(prefix.blocks)
        self._branch = 0 if is_whole else len(prefix.blocks) * self._block_size
        return Prefix(prefix.blocks[:num_blocks], prefix.nodes[: num_blocks + 1], None, 0)

    def register_branch(self, length: int, node: NodeId) -> None:
        """Share the state after `length` tokens if that is the end of the shared prefix."""
        if length == self._branch:
            self.register(length, node)
            self._branch = 0

    def register(self, length: int, node: NodeId) -> None:
        """Share the state after `length` tokens with this node of the KV cache."""
        block = self.states.get(length, ZEROS)
        if block != ZEROS and self._pool.blocks.find(node, ()) is None:
            self._pool.blocks.register(block, node, ())
            self._registered.append(block)

    def free(self, *, forgets: bool) -> None:
        """Free all blocks. forgets: drop shared states too."""
        self._release([length for length in self.states if length > 0])
        if forgets:
            self._pool.blocks.forget(self._registered)
        self._registered.clear()
        self._branch = 0
        self._pool.num_sequences -= self._is_counted
        self._is_counted = False

    def _last_full(self, length: int) -> int:
        """The end of the last full block of `length` tokens."""
        return length // self._block_size * self._block_size

    def _allocate(self, lengths: list[int]) -> dict[int, int]:
        self._count()
        new: dict[int, int] = {}
        try:
            for length in lengths:
                new[length] = self._pool.blocks.allocate()
        except BaseException:
            self._pool.blocks.release([*new.values()])
            raise
        return new

    def _release(self, lengths: list[int]) -> None:
        self._pool.blocks.release([self.states.pop(length) for length in lengths])

    def _count(self) -> None:
        """Count the sequence as one that has states."""
        self._pool.num_sequences += not self._is_counted
        self._is_counted = True
