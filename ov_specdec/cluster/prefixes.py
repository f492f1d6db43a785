"""Which replica has the beginning of a prompt in its KV cache, as far as its requests tell."""

from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Hashable, Sequence
from hashlib import blake2b

BLOCK = 32
"""Tokens that are hashed together: as many as a block of the paged KV cache holds."""

CAPACITY = 65_536
"""Blocks remembered of each replica: those of two million tokens, in about 10 MB."""


def hash_prefixes(tokens: Sequence[int], namespace: Hashable = None) -> tuple[bytes, ...]:
    """A hash for each full block, of it and all before it. Equal only within one namespace."""
    digest = blake2b(repr(namespace).encode(), digest_size=16).digest()
    hashes = []
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        block = array("q", tokens[start : start + BLOCK]).tobytes()
        digest = blake2b(digest + block, digest_size=16).digest()
        hashes.append(digest)
    return tuple(hashes)


def hash_key(key: str, namespace: Hashable = None) -> bytes:
    """A hash of a key that requests have been given. Equal only within one namespace."""
    return blake2b(repr((namespace, key)).encode(), digest_size=16).digest()


def preference(num_known: int, num_blocks: int, num_running: int, max_running: int) -> float:
    """How well a replica suits a prompt; the greatest is to be taken, but one that is full is not.

    The part of the prompt that it need not read, less the part of its batch that is in use. So a
    system prompt that all share does not send everybody to one replica, and a conversation goes
    back to its own unless that is full.
    """
    known = num_known / num_blocks if num_blocks else 0.0
    return known - num_running / max_running


class Prefixes:
    """The blocks that each replica was sent last. capacity: most blocks of each."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        # By replica, the least recently used first.
        self._known: defaultdict[Hashable, OrderedDict[bytes, None]] = defaultdict(OrderedDict)

    def remember(self, replica: Hashable, hashes: Sequence[bytes]) -> None:
        """A replica reads these blocks, or has them."""
        known = self._known[replica]
        for each in reversed(hashes):  # the first block is given up last, as in the cache
            known[each] = None
            known.move_to_end(each)
        while len(known) > self._capacity:
            known.popitem(last=False)

    def count(self, replica: Hashable, hashes: Sequence[bytes]) -> int:
        """Blocks that a replica has of these, from the first on."""
        known = self._known.get(replica, OrderedDict())
        for index, each in enumerate(hashes):
            if each not in known:
                return index
        return len(hashes)

    def keep(self, replicas: Collection[Hashable]) -> None:
        """Forget all replicas but these."""
        for replica in self._known.keys() - set(replicas):
            del self._known[replica]
