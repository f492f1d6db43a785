"""Indexes of the most recent outputs, in bounded memory, to find draft tokens in."""

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from threading import Lock

from ov_specdec.drafters.suffix_index import MAX_MATCH, SuffixIndex

CAPACITY = 100_000
"""Tokens that are kept; their indexes take 50 MB."""


class EarlierOutputs:
    """Indexes of outputs, apart by namespace, the oldest forgotten first.

    Each namespace has generations of half of the capacity; a full one is followed by a new one, and
    what is too much goes a generation at a time, of the namespace that has been idle longest.
    Outputs that were remembered wait until `take_in` adds them to indexes, which takes long enough
    not to be done by a thread that runs steps; of them, too, as many tokens are kept. All may be
    called from any thread.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._generations: OrderedDict[Hashable, list[SuffixIndex]] = OrderedDict()
        self._new: deque[tuple[Hashable, list[int]]] = deque()
        self.num_waiting = 0
        """Tokens of outputs that are in no index yet."""
        self._lock = Lock()
        self._taking_in = Lock()

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

    def take_in(self) -> None:
        """Add to the indexes what waits for it, unless another thread is about it."""
        if not self._taking_in.acquire(blocking=False):
            return
        try:
            while output := self._next():
                self._add(*output)
        finally:
            self._taking_in.release()

    def indexes(self, namespace: Hashable) -> list[SuffixIndex]:
        """Those of a namespace, the oldest first; the last one may grow."""
        return list(self._generations.get(namespace, ()))

    def _next(self) -> tuple[Hashable, list[int]] | None:
        """The output that has waited longest, which waits no more."""
        with self._lock:
            if not self._new:
                return None
            output = self._new.popleft()
            self.num_waiting -= len(output[1])
            return output

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
