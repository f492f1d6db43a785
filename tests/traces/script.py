"""Logits as a function of all tokens before, so that a token in the wrong place shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_128

import numpy as np
from numpy.typing import NDArray

from tests.traces.letters import MAIN, Letters

Row = NDArray[np.float32]
SIXTEENTH = np.float32(1 / 16)


@dataclass(frozen=True)
class Script:
    """The logits of one model.

    A row is a sum of what the last token prefers, which makes texts repeat themselves, of what the
    whole text prefers, and of the model's own drift: of a draft model whose drift is small, most
    tokens are the main model's. All numbers are exact in 32 bits, and so the same everywhere.
    """

    letters: Letters = MAIN
    drift: float = 0.0

    def row(self, tokens: Sequence[int]) -> Row:
        """The logits [vocab] after some tokens."""
        if self.letters is MAIN:
            text = bytes(tokens)
        else:
            text = bytes(MAIN.encode(self.letters.decode(tokens)))
        row = _row(text, self.drift)
        return row if self.letters is MAIN else self._in_own_tokens(text, row)

    def _in_own_tokens(self, text: bytes, row: Row) -> Row:
        """The same for other tokens: a pair is as likely as its first letter, if it goes on so."""
        own = np.empty(len(self.letters.tokens), np.float32)
        for token, letters in enumerate(self.letters.tokens):
            first, *rest = MAIN.encode(letters)
            own[token] = row[first]
            for second in rest:
                after = _row(bytes([*text, first]), self.drift)
                own[token] += after[second] - after.max() + 0.5
        return own


@lru_cache(maxsize=4096)
def _row(text: bytes, drift: float) -> Row:
    last, size = _numbers(text[-1:], b"last"), len(MAIN.tokens)
    row = last * last * SIXTEENTH + _numbers(text, b"whole") * 2 * SIXTEENTH
    if drift:
        row = row + np.float32(drift / 16) * _numbers(text, b"drift")
    assert row.shape == (size,)
    row.setflags(write=False)
    return row


def _numbers(text: bytes, kind: bytes) -> Row:
    """Numbers from 0 to 16 that follow from a text."""
    digest = shake_128(kind + b"/" + text).digest(len(MAIN.tokens))
    return np.frombuffer(digest, np.uint8).astype(np.float32) * SIXTEENTH
