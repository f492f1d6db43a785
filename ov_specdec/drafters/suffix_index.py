"""Indexes of earlier occurrences of a sequence's last tokens, and their continuations."""

import math
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

ANCHORS = (8, 4, 2, 1)
"""Lengths of the n-grams in the index, the longest first. Hits are then compared token by token, so
longer matches are measured in full."""

MAX_MATCH = 32
"""Maximum measured length of a match: after longer ones hardly any draft token is rejected."""

MAX_OCCURRENCES = 16
"""Most recent occurrences of an n-gram that are searched: 4 and 64 predict equally well."""

MAX_AGREEING = 2
"""Occurrences that raise the confidence: further ones often repeat a block, and add no evidence."""

END = -1
"""Follows the last token of a text."""

CAPACITY = 100_000
"""Maximum number of tokens; their indexes take 50 MB."""


@dataclass(frozen=True)
class Match:
    """Occurrences in an index of the last `length` tokens of a sequence.

    tokens: of the index. followers: positions after the occurrences, the most recent first.
    """

    tokens: Sequence[int]
    followers: tuple[int, ...]
    length: int

    @property
    def confidence(self) -> float:
        """Confidence in the first draft token, one of twelve values, so that each can be learnt.

        The share of occurrences that it follows, times L / (L + 1) for a match of L tokens.
        """
        votes = Counter([self.tokens[position] for position in self.followers])
        share = max(votes.values()) / len(self.followers)
        weight = self.length * min(len(self.followers), MAX_AGREEING)
        probability = share * weight / (weight + 1)
        odds = 2.0 ** round(math.log2(probability / (1 - probability)))
        return odds / (1 + odds)

    def continuation(self, limit: int) -> list[int]:
        """Up to `limit` draft tokens: the most frequent path through the occurrences.

        Each is the most frequent token after those before it; of equals the most recent one. A
        text that repeats itself up to its end continues into the draft tokens.
        """
        tokens, positions, path = self.tokens, self.followers, list[int]()
        end = len(tokens)  # the index may grow meanwhile
        while len(path) < limit:
            known = [tokens[p] if p < end else path[p - end] for p in positions]
            best = known[0]
            if known.count(best) < len(known):
                votes = Counter(token for token in known if token != END)
                best = max(votes, key=votes.__getitem__)
                pairs = zip(positions, known, strict=True)
                positions = tuple(position for position, token in pairs if token == best)
            elif best == END:
                break
            path.append(best)
            positions = tuple([position + 1 for position in positions])
        return path


class SuffixIndex:
    """Texts in which the last tokens of a sequence are found in constant time.

    Chains of equal n-grams by hash, as in deflate (RFC 1951, section 4), replace the tree of
    SuffixDecoding (Oliaro et al., arXiv 2411.04975) and the automaton of SAM-Decoding (Hu et al.,
    arXiv 2411.10666). A tree counts continuations while the text grows; `Match` counts them in a
    bounded number of occurrences.

    One thread may add to it while others search: a token is stored before its index entries.

    tokens: all texts, each followed by `END`, except for the one that still grows.
    """

    def __init__(self, texts: Iterable[Sequence[int]] = ()) -> None:
        self.tokens: list[int] = []
        # By anchor: the position after the last occurrence of an n-gram, by its hash; and for each
        # position, the one after the occurrence before, or -1.
        self._latest: list[dict[int, int]] = [{} for _ in ANCHORS]
        self._earlier = [array("i") for _ in ANCHORS]
        for text in texts:
            self.add(text)

    def add(self, text: Sequence[int]) -> None:
        """Add a text that is complete."""
        self.extend([*text, END])

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the growing text."""
        known = self.tokens
        chains = list(zip(ANCHORS, self._latest, self._earlier, strict=True))
        for token in tokens:
            position = len(known)
            known.append(token)
            for size, latest, earlier in chains:
                ngram = hash(tuple(known[max(position - size, 0) : position]))
                earlier.append(latest.get(ngram, -1))
                latest[ngram] = position

    def find(self, sequence: Sequence[int]) -> Match | None:
        """The longest match of the sequence's last tokens that has a continuation, if any.

        Only the latest `MAX_OCCURRENCES` occurrences of the longest n-gram are searched; lengths
        are measured up to `MAX_MATCH`.
        """
        for size, latest, earlier in zip(ANCHORS, self._latest, self._earlier, strict=True):
            if len(sequence) < size:
                continue
            position = latest.get(hash(tuple(sequence[-size:])), -1)
            lengths: dict[int, int] = {}
            for _ in range(MAX_OCCURRENCES):
                if position < 0:
                    break
                length = self._compare(position, sequence)
                # Else another n-gram has the same hash, or the text ends there.
                if length >= size and self.tokens[position] != END:
                    lengths[position] = length
                position = earlier[position]
            if lengths:
                longest = max(lengths.values())
                followers = tuple(p for p, length in lengths.items() if length == longest)
                return Match(self.tokens, followers, longest)
        return None

    def _compare(self, position: int, sequence: Sequence[int]) -> int:
        """How many tokens before a position equal the last ones of the sequence."""
        tokens, length = self.tokens, 0
        most = min(position, len(sequence), MAX_MATCH)
        if tokens[position - most : position] == sequence[-most:]:
            return most
        while length < most and tokens[position - 1 - length] == sequence[-1 - length]:
            length += 1
        return length


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
