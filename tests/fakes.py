"""A scripted session: a model that is a function from tokens to the next token."""

from collections.abc import Callable, Sequence

import numpy as np

from ov_specdec.baseline import common_prefix
from ov_specdec.cache.session import Logits, check_rollback, check_room, count_rows

NextToken = Callable[[Sequence[int]], int]


class ScriptedSession:
    """Implements `Session`. Its cache is the list of tokens that it was fed and not told to forget.

    Row i of a pass is one-hot at the scripted successor of everything up to `tokens[i]`, computed
    from the cache: if tokens were fed in the wrong place, the rows are wrong.
    """

    def __init__(self, next_token: NextToken, *, vocab_size: int = 50, max_length: int = 1000):
        self._next_token = next_token
        self._vocab_size = vocab_size
        self._max_length = max_length
        self.cache: list[int] = []
        self.left: list[int] = []
        """What the sequence before has left."""
        self.passes: list[int] = []
        """Number of tokens of each pass."""
        self.rollbacks: list[int] = []

    @property
    def length(self) -> int:
        return len(self.cache)

    @property
    def max_length(self) -> int:
        return self._max_length

    def forward(self, tokens: Sequence[int], num_rows: int | None = None) -> Logits:
        check_room(self.length, len(tokens), self._max_length)
        self.passes.append(len(tokens))
        rows = np.zeros((len(tokens), self._vocab_size), np.float32)
        for row, token in zip(rows, tokens, strict=True):
            self.cache.append(token)
            row[self._next_token(self.cache)] = 1.0
        return rows[-count_rows(len(tokens), num_rows) :]

    def rollback(self, length: int) -> None:
        check_rollback(self.length, length)
        self.rollbacks.append(length)
        del self.cache[length:]

    def reset(self) -> None:
        self.cache = []
        self.left = []

    def adopt(self, tokens: Sequence[int]) -> int:
        assert self.cache == [], "a sequence begins on an empty cache"
        self.cache, self.left = self.left[: common_prefix(self.left, tokens)], []
        return self.length

    def settle(self, tokens: Sequence[int], length: int) -> None:
        assert list(map(int, self.cache[:length])) == list(map(int, tokens[:length]))
        assert len(self.cache) >= length

    def leave(self, tokens: Sequence[int]) -> None:
        assert self.cache[: len(tokens)] == list(tokens)
        self.cache, self.left = [], list(tokens)


def counting(tokens: Sequence[int]) -> int:
    """Counts on, modulo 50."""
    return (tokens[-1] + 1) % 50


def mixing(seed: int, vocab_size: int = 50) -> NextToken:
    """A successor that depends on every token and its place, so that no mix-up goes unnoticed."""

    def next_token(tokens: Sequence[int]) -> int:
        state = seed
        for place, token in enumerate(tokens):
            state = (state * 31 + token * (place + 7) + 3) % 1_000_003
        return state % vocab_size

    return next_token


def wrong_at(next_token: NextToken, places: set[int]) -> NextToken:
    """The same successor, except for the tokens in the given places of the text."""

    def drafted(tokens: Sequence[int]) -> int:
        right = next_token(tokens)
        return (right + 1) % 50 if len(tokens) in places else right

    return drafted
