"""Hand-made models of a few tokens, as sessions: logits are a function of the last tokens."""

from collections.abc import Callable, Sequence

import numpy as np

from ov_specdec.cache.session import Logits, check_rollback, check_room, count_rows

Model = Callable[[Sequence[int]], Logits]
"""From all tokens so far to the logits [vocab] of the next one."""


def table_model(weights: np.ndarray) -> Model:
    """The next token's weights by the last token: row `tokens[-1]` of weights [vocab, vocab]."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(weights, np.float64)).astype(np.float32)
    return lambda tokens: logits[tokens[-1]]


class ToySession:
    """Implements `Session` on a model that is a function."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._cache: list[int] = []
        self.max_length = 1000

    @property
    def length(self) -> int:
        return len(self._cache)

    def forward(self, tokens: Sequence[int], num_rows: int | None = None) -> Logits:
        check_room(self.length, len(tokens), self.max_length)
        rows = []
        for token in tokens:
            self._cache.append(token)
            rows.append(self._model(self._cache))
        return np.array(rows[-count_rows(len(tokens), num_rows) :], np.float32)

    def rollback(self, length: int) -> None:
        check_rollback(self.length, length)
        del self._cache[length:]

    def reset(self) -> None:
        self._cache.clear()

    def adopt(self, tokens):
        return 0

    def settle(self, tokens, length):
        pass

    def leave(self, tokens):
        self.reset()
