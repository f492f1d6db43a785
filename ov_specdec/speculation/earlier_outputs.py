"""The most recent outputs, to find candidates in."""

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from threading import Lock

from ov_specdec.speculation.suffix_index import MAX_MATCH, SuffixIndex

CAPACITY = 100_000
"""Tokens that are kept; their indexes take 50 MB."""


class EarlierOutputs:
    """Indexes of outputs, apart by namespace, the oldest forgotten first.

    Each namespace has generations of half of the capacity; a full one is followed by a new one, and
    what is too much goes a generation at a time, of the namespace that has been idle longest.
    `remember` may be called from any thread, `indexes` from one at a time. Outputs that nobody has
    asked for yet are in no index; of them, too, as many tokens are kept.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._generations: OrderedDict[Hashable, list[SuffixIndex]] = OrderedDict()
        self._new: deque[tuple[Hashable, list[int]]] = deque()
        self.num_waiting = 0
        """Tokens of outputs that are in no index yet."""
        self._lock = Lock()

    @property
    def num_tokens(self) -> int:
        """Tokens in the indexes."""
        indexes = (index for generations in self._generations.values() for index in generations)
        return sum(len(index.tokens) for index in indexes)

    def remember(self, namespace: Hashable, tokens: Sequence[int], num_prompt: int) -> None:
        """Keep an output, and of its prompt what a match may need.

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

    def indexes(self, namespace: Hashable) -> list[SuffixIndex]:
        """Those of a namespace, the oldest first; none changes before the next call."""
        with self._lock:
            new, self._new, self.num_waiting = self._new, deque(), 0
        for output in new:
            self._add(*output)
        return self._generations.get(namespace, [])

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
