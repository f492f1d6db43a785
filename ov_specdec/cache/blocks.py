"""Bookkeeping of a paged KV cache: which blocks belong to which sequence. No tensors here.

Source: PagedAttention, Kwon et al. (arXiv 2309.06180).
"""

from ov_specdec.cache.session import check_rollback
from ov_specdec.errors import SessionError


class BlockPool:
    """The blocks of one model's KV cache, handed out to sequences and taken back.

    `size` blocks exist at first; when none is free, `size` doubles up to `max_blocks`, and the
    owner of the tensors enlarges those to match.
    """

    def __init__(self, size: int, max_blocks: int) -> None:
        if not 0 < size <= max_blocks:
            raise SessionError(f"a pool of {size} blocks does not fit its limit of {max_blocks}")
        self.size = size
        self.max_blocks = max_blocks
        self._free = list(reversed(range(size)))

    def allocate(self) -> int:
        """Hand out a free block, growing the pool if there is none."""
        if not self._free:
            self._grow()
        return self._free.pop()

    def release(self, blocks: list[int]) -> None:
        """Take blocks back."""
        self._free.extend(reversed(blocks))

    def _grow(self) -> None:
        if self.size >= self.max_blocks:
            raise SessionError(
                f"all {self.max_blocks} blocks of the KV cache are in use: "
                "shorten the prompt or lower max_new_tokens"
            )
        size = min(2 * self.size, self.max_blocks)
        self._free.extend(reversed(range(self.size, size)))
        self.size = size


class BlockTable:
    """The blocks of one sequence, in order, and how many of its tokens they hold.

    Rolling back sets a counter: the blocks stay with the sequence and are written over.
    """

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self.blocks: list[int] = []
        self.length = 0

    def append(self, num_tokens: int) -> None:
        """Make room for `num_tokens` more and count them as held."""
        needed = -(-(self.length + num_tokens) // self._block_size)
        while len(self.blocks) < needed:
            self.blocks.append(self._pool.allocate())
        self.length += num_tokens

    def rollback(self, length: int) -> None:
        """Count only the first `length` tokens as held."""
        check_rollback(self.length, length)
        self.length = length

    def clear(self) -> None:
        """Give all blocks back."""
        self._pool.release(self.blocks)
        self.blocks = []
        self.length = 0
