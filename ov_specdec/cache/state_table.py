"""The recurrent states of sequences in a paged cache: which block holds which. No tensors here.

Layers with linear attention or convolutions fold all tokens into a state of fixed size. A pass
leaves the state after each token that may become the last one in a block of its own, so that a
rollback goes on from another block: nothing is copied, and nothing is read again.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ov_specdec.cache.block_pool import BlockPool, NodeId, Prefix

ZEROS, SPARE = 0, 1
"""Blocks that no sequence owns: what all begin with, and what nobody reads."""

NUM_OWN = 4
"""States of a sequence beside those after draft tokens: where it stands and after the next token,
at the end of its last full block, and where it left what others share."""

MAX_LAG = 16
"""Tokens that a pass may hold beside those whose rows are wanted, and yet keep the state after each
of these: a draft model's after rounds without it. To write the states of a prompt would take long.
"""


class StatePool:
    """The blocks for the states of one model's sequences, of which `num_sequences` have some.

    Raises `CacheFullError`, as a `BlockPool` does, where all are in use.
    """

    def __init__(self, size: int) -> None:
        self.blocks = BlockPool(size, size)
        self.num_sequences = 0
        for _ in (ZEROS, SPARE):
            self.blocks.allocate()

    @property
    def size(self) -> int:
        """Blocks that sequences may have."""
        return self.blocks.size - len((ZEROS, SPARE))

    def limit(self, size: int) -> None:
        """Have so many blocks, before any sequence has one."""
        self.blocks.size = self.blocks.max_blocks = size

    @property
    def max_draft_tokens(self) -> int:
        """Draft tokens that each sequence, and one that may come, has room for in a pass."""
        return max(self.size // (self.num_sequences + 1) - NUM_OWN, 0)

    @property
    def has_room(self) -> bool:
        """Whether another sequence has room for a pass without draft tokens."""
        return (self.num_sequences + 1) * NUM_OWN <= self.size


class StateSpan(NamedTuple):
    """Blocks of one sequence in a pass: the state before it, then those that it writes.

    interval: tokens from one written state to the next, counted from the sequence's first; the last
    one is after the last token, wherever that is.
    """

    blocks: list[int]
    interval: int


class StateTable:
    """The blocks of one sequence, by the number of tokens whose state they hold.

    A block that holds a state is not written to again before it is given back, so that sequences
    with the same first tokens share it. States are kept for others at the end of full blocks of
    the KV cache, beside which they are found: of the prompt, of the sequence once it ends, and
    where the prompt left what others share.
    """

    def __init__(self, pool: StatePool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._states = {0: ZEROS}
        self._branch = 0  # where it left what others share, until its state is offered
        self._offered: list[int] = []
        self._is_counted = False

    @property
    def states(self) -> Mapping[int, int]:
        """Blocks, by the number of tokens."""
        return self._states

    def extend(
        self, length: int, num_tokens: int, num_rows: int, *, has_spare_row: bool = False
    ) -> StateSpan:
        """Blocks for a pass over tokens after the first `length`.

        num_rows: last tokens before each of which the sequence may be rolled back to. Of a long
        prompt only two states are kept: at the end of its last full block, and of all. Raises
        `CacheFullError`; the sequence then stands where it stood. has_spare_row: the single token
        is repeated, to no effect.
        """
        end = length + num_tokens
        first = end - max(num_rows, 1)
        interval = self._block_size if num_tokens > num_rows + MAX_LAG else 1
        if num_tokens > 1:  # a draft model's steps are rolled back together
            self.commit(length)
        places = [min(place, end) for place in _places(length, end, interval)]
        wanted = {self._border(first), self._branch, *range(first, end + 1)}
        new = self._allocate([place for place in places if place in wanted])
        blocks = [self._states[length], *(new.get(place, SPARE) for place in places)]
        self._states |= new
        return StateSpan([*blocks, SPARE] if has_spare_row else blocks, interval)

    def rollback(self, length: int) -> int:
        """Forget the states after more tokens; how many the last one that is left stands for."""
        length = max(place for place in self._states if place <= length)
        self._release([place for place in self._states if place > length])
        return length

    def commit(self, length: int) -> None:
        """Forget states after fewer tokens, but for those that others may want."""
        kept = {0, self._border(length), self._branch}
        self._release([place for place in self._states if place < length and place not in kept])

    def match(self, prefix: Prefix) -> Prefix:
        """As much of what is cached as there is a state for, which the sequence begins with.

        Where more was cached, a state is kept for the next one that begins likewise.
        """
        self._count()
        for num_blocks in range(len(prefix.blocks), 0, -1):
            block = self._pool.blocks.find(prefix.nodes[num_blocks], ())
            if block is not None:
                self._pool.blocks.share(block)
                self._states[num_blocks * self._block_size] = block
                break
        else:
            num_blocks = 0
        if num_blocks < len(prefix.blocks):
            self._branch = len(prefix.blocks) * self._block_size
        return Prefix(prefix.blocks[:num_blocks], prefix.nodes[: num_blocks + 1], None, 0)

    def offer_branch(self, length: int, node: NodeId) -> None:
        """Let others find the state after so many tokens if that is what they may want."""
        if length == self._branch:
            self.offer(length, node)
            self._branch = 0

    def offer(self, length: int, node: NodeId) -> None:
        """Let others find the state after so many tokens beside this node of the KV cache."""
        block = self._states.get(length, ZEROS)
        if block != ZEROS and self._pool.blocks.find(node, ()) is None:
            self._pool.blocks.register(block, node, ())
            self._offered.append(block)

    def restore(self, length: int) -> None:
        """Have blocks for what was saved of a sequence of so many tokens: see `saved`."""
        self._count()
        self._states |= self._allocate(self._saved_places(length))

    def saved(self, length: int) -> list[int]:
        """Blocks that a sequence of so many tokens goes on from, and others with it."""
        places = self._saved_places(length)
        return [self._states[place] for place in places if place in self._states]

    def _saved_places(self, length: int) -> list[int]:
        """Numbers of tokens after which the states are saved."""
        return sorted({self._border(length), length} - {0})

    def free(self, *, forgets: bool) -> None:
        """Give all blocks back. forgets: nobody finds what was offered."""
        self._release([place for place in self._states if place > 0])
        if forgets:
            self._pool.blocks.forget(self._offered)
        self._offered.clear()
        self._branch = 0
        self._pool.num_sequences -= self._is_counted
        self._is_counted = False

    def _border(self, length: int) -> int:
        """The end of the last full block of so many tokens."""
        return length // self._block_size * self._block_size

    def _allocate(self, places: list[int]) -> dict[int, int]:
        """A block for each of these numbers of tokens."""
        self._count()
        new: dict[int, int] = {}
        try:
            for place in places:
                new[place] = self._pool.blocks.allocate()
        except BaseException:
            self._pool.blocks.release([*new.values()])
            raise
        return new

    def _release(self, places: list[int]) -> None:
        self._pool.blocks.release([self._states.pop(place) for place in places])

    def _count(self) -> None:
        """Count the sequence among those that have states."""
        self._pool.num_sequences += not self._is_counted
        self._is_counted = True


def _places(length: int, end: int, interval: int) -> range:
    """Numbers of tokens after which a pass writes a state; the last one may be beyond its end."""
    return range(length - length % interval + interval, end + interval, interval)
