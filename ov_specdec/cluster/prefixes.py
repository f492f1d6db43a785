"""Estimates which replica has a prompt's prefix in its KV cache, from the requests it got."""

from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Hashable, Sequence
from hashlib import blake2b

BLOCK = 32
"""Tokens in a hash: a block of the paged KV cache."""

CAPACITY = 65_536
"""Blocks remembered for each replica: two million tokens, in about 10 MB."""


def hash_prefixes(tokens: Sequence[int], namespace: Hashable = None) -> tuple[bytes, ...]:
    """A hash for each full block, of it and all before it; distinct between namespaces."""
    digest = blake2b(repr(namespace).encode(), digest_size=16).digest()
    hashes = []
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        block = array("q", tokens[start : start + BLOCK]).tobytes()
        digest = blake2b(digest + block, digest_size=16).digest()
        hashes.append(digest)
    return tuple(hashes)


def hash_key(key: str, namespace: Hashable = None) -> bytes:
    """A hash of `prompt_cache_key`. Equal only within one namespace."""
    return blake2b(repr((namespace, key)).encode(), digest_size=16).digest()


def preference(num_known: int, num_blocks: int, num_running: int, max_running: int) -> float:
    """The preference for a replica that is not full; higher is better.

    The cached fraction of the prompt, minus the used fraction of the batch. A common system prompt
    thus does not send all requests to one replica, and a conversation returns to its own replica
    unless that is full.
    """
    known = num_known / num_blocks if num_blocks else 0.0
    return known - num_running / max_running


class Prefixes:
    """The blocks that each replica was sent last. capacity: maximum blocks of each."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        # By replica, the least recently used first.
        self._known: defaultdict[Hashable, OrderedDict[bytes, None]] = defaultdict(OrderedDict)

    def remember(self, replica: Hashable, hashes: Sequence[bytes]) -> None:
        """Note that a replica caches these blocks."""
        known = self._known[replica]
        for each in reversed(hashes):  # the first block is evicted last, as in the cache
            known[each] = None
            known.move_to_end(each)
        while len(known) > self._capacity:
            known.popitem(last=False)

    def count(self, replica: Hashable, hashes: Sequence[bytes]) -> int:
        """The number of leading blocks that a replica has."""
        known = self._known.get(replica, OrderedDict())
        for index, each in enumerate(hashes):
            if each not in known:
                return index
        return len(hashes)

    def keep(self, replicas: Collection[Hashable]) -> None:
        """Forget all replicas but these."""
        for replica in self._known.keys() - set(replicas):
            del self._known[replica]
