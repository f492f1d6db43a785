"""Bookkeeping of a paged KV cache: which blocks hold which tokens. No tensors here.

Source: PagedAttention, Kwon et al. (arXiv 2309.06180). Blocks are shared by content, as in vLLM's
automatic prefix caching, but keyed by the tokens themselves, and including partial blocks.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from operator import attrgetter
from typing import NamedTuple

from ov_specdec.cache.slot import common_prefix
from ov_specdec.errors import CacheFullError

Root = tuple[Hashable]
"""The parent of the first block of every sequence of a namespace, which is its content."""

NodeId = int | Root
"""A node by its serial number, which is never used again, or the root."""


class Node(NamedTuple):
    """A block that may be shared. tokens: its tokens. parent: the node before it."""

    serial: int
    parent: NodeId
    tokens: tuple[int, ...]
    block: int


class Prefix(NamedTuple):
    """The cached prefix of a sequence: full blocks, and the beginning of one more.

    nodes: the root, and those of the full blocks. partial: a block whose first `num_partial` tokens
    match; it belongs to others, so the caller copies it.
    """

    blocks: list[int]
    nodes: list[NodeId]
    partial: int | None
    num_partial: int


class BlockPool:
    """Allocates, shares and frees the blocks of one model's KV cache, and finds them by content.

    Freed blocks without content are allocated first, then new ones. If there are none, cached
    blocks without users are evicted, the least recently used first. copy: copies a block's content
    to another.
    """

    def __init__(self, size: int, copy: Callable[[int, int], None] = lambda *_: None) -> None:
        self.size = size
        self.copy = copy
        self._free: list[int] = []
        self._num_touched = 0  # blocks from this index on were never used
        self._users: dict[int, int] = {}
        # Cached blocks without users, the least recently used first.
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._nodes: dict[int, Node] = {}  # by block
        # Children by parent, in the order of their tokens.
        self._children: dict[NodeId, list[Node]] = {}
        self._serials = count()

    @property
    def num_available(self) -> int:
        """Blocks that can be allocated."""
        return self.size - self.num_used

    @property
    def num_used(self) -> int:
        """Blocks that sequences hold."""
        return len(self._users)

    def allocate(self) -> int:
        """Allocate a block. Raises `CacheFullError` if all are in use."""
        if self._free:
            block = self._free.pop()
        elif self._num_touched < self.size:
            block = self._num_touched
            self._num_touched += 1
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            self._unregister(block)
        else:
            raise CacheFullError(
                f"all {self.size} blocks of the KV cache are in use: shorten the prompt or lower "
                "{max_new_tokens}",
                max_new_tokens=...,
            )
        self._users[block] = 1
        return block

    def share(self, block: int) -> None:
        """Count one more user of a block."""
        self._idle.pop(block, None)
        self._users[block] = self._users.get(block, 0) + 1

    def release(self, blocks: Sequence[int]) -> None:
        """Count one user fewer of each; the last blocks of a sequence are evicted first."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if self._users[block]:
                continue
            del self._users[block]
            if block in self._nodes:
                self._idle[block] = None
            else:
                self._free.append(block)

    def register(self, block: int, parent: NodeId, tokens: Sequence[int]) -> int:
        """Let other sequences find a block by its content. Returns the node of this content.

        From now on these tokens of the block must not be overwritten.
        """
        key = tuple(tokens)
        siblings = self._children.setdefault(parent, [])
        index = _index(siblings, key)
        if index == len(siblings) or siblings[index].tokens != key:
            node = self._nodes[block] = Node(next(self._serials), parent, key, block)
            siblings.insert(index, node)
        return siblings[index].serial

    def forget(self, blocks: Sequence[int]) -> None:
        """Evict those of these blocks that have no users."""
        for block in blocks:
            if block in self._idle:
                del self._idle[block]
                self._unregister(block)
                self._free.append(block)

    def match(self, tokens: Sequence[int], block_size: int, root: Root) -> Prefix:
        """The longest cached prefix of a sequence. Allocates nothing."""
        blocks: list[int] = []
        nodes: list[NodeId] = [root]
        while True:
            start = len(blocks) * block_size
            key = tuple(tokens[start : start + block_size])
            best, num_common = self._most_alike(nodes[-1], key)
            if best is None or num_common < block_size:
                return Prefix(blocks, nodes, best.block if best else None, num_common)
            blocks.append(best.block)
            nodes.append(best.serial)

    def find(self, parent: NodeId, tokens: tuple[int, ...]) -> int | None:
        """The block with exactly these tokens after a node. Allocates nothing."""
        siblings = self._children.get(parent, [])
        index = _index(siblings, tokens)
        is_there = index < len(siblings) and siblings[index].tokens == tokens
        return siblings[index].block if is_there else None

    def _most_alike(self, parent: NodeId, tokens: tuple[int, ...]) -> tuple[Node | None, int]:
        """The child that shares the longest prefix with these tokens, and its length.

        In sorted order it is adjacent to their position.
        """
        siblings = self._children.get(parent, ())
        index = _index(siblings, tokens)
        best, num_common = None, 0
        for node in siblings[max(index - 1, 0) : index + 1]:
            if (same := common_prefix(node.tokens, tokens)) > num_common:
                best, num_common = node, same
        return best, num_common

    def _unregister(self, block: int) -> None:
        node = self._nodes.pop(block)
        siblings = self._children[node.parent]
        del siblings[_index(siblings, node.tokens)]
        if not siblings:
            del self._children[node.parent]


def _index(siblings: Sequence[Node], tokens: tuple[int, ...]) -> int:
    return bisect_left(siblings, tokens, key=attrgetter("tokens"))
