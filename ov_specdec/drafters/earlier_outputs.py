"""Bounded indexes of recent outputs, as a source of draft tokens."""

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from threading import Lock

from ov_specdec.drafters.suffix_index import MAX_MATCH, SuffixIndex

CAPACITY = 100_000
"""Maximum number of tokens; their indexes take 50 MB."""


class EarlierOutputs:
    """Indexes of outputs by namespace; the oldest are evicted first.

    Each namespace has generations of half the capacity. A full generation is followed by a new
    one; eviction removes one generation, of the namespace that has been idle longest. `remember`
    only queues an output, up to the capacity. `take_in` adds it to an index, which takes too long
    for the thread that runs steps. Thread-safe.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._generations: OrderedDict[Hashable, list[SuffixIndex]] = OrderedDict()
        self._new: deque[tuple[Hashable, list[int]]] = deque()
        self.num_waiting = 0
        """Queued tokens, in no index yet."""
        self._lock = Lock()
        self._taking_in = Lock()

    @property
    def num_tokens(self) -> int:
        """Tokens in the indexes."""
        return sum(len(index.tokens) for own in self._generations.values() for index in own)

    def remember(self, namespace: Hashable, tokens: Sequence[int], num_prompt: int) -> None:
        """Queue an output, with as much of its prompt as a match may need.

        tokens: prompt and output; the first `num_prompt` are the prompt's.
        """
        if len(tokens) <= num_prompt:
            return
        kept = list(tokens[max(num_prompt - MAX_MATCH, 0) :])
        with self._lock:
            self._new.append((namespace, kept))
            self.num_waiting += len(kept)
            while self.num_waiting > self._capacity:
                self.num_waiting -= len(self._new.popleft()[1])

    def take_in(self) -> None:
        """Add queued outputs to the indexes, unless another thread is doing so."""
        if not self._taking_in.acquire(blocking=False):
            return
        try:
            while True:
                with self._lock:
                    if not self._new:
                        return
                    namespace, tokens = self._new.popleft()
                    self.num_waiting -= len(tokens)
                self._add(namespace, tokens)
        finally:
            self._taking_in.release()

    def indexes(self, namespace: Hashable) -> list[SuffixIndex]:
        """The indexes of a namespace, the oldest first; the last one may grow."""
        return list(self._generations.get(namespace, ()))

    def _add(self, namespace: Hashable, tokens: list[int]) -> None:
        generations = self._generations.setdefault(namespace, [SuffixIndex()])
        self._generations.move_to_end(namespace)
        if len(generations[-1].tokens) >= self._capacity // 2:
            generations.append(SuffixIndex())
        generations[-1].add(tokens)
        while self.num_tokens > self._capacity and self._generations:
            idle, oldest = next(iter(self._generations.items()))
            del oldest[0]
            if not oldest:
                del self._generations[idle]
