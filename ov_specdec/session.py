"""What the engine needs of a model: one sequence's KV cache, and passes that extend it."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ov_specdec.errors import SessionError

Logits = NDArray[np.float32]

PREFILL_CHUNK = 512
"""Tokens per pass while a prompt is read: bounds the logits to 512 rows, whatever its length."""


class Session(Protocol):
    """A compiled model together with the KV cache of one sequence.

    The list of tokens that the caller keeps is the only truth: a session just knows how many of
    them its cache holds, and is fed what it lacks (see `catch_up`).
    """

    @property
    def length(self) -> int:
        """Number of tokens that the KV cache holds."""
        ...

    @property
    def max_length(self) -> int:
        """Number of tokens that the KV cache can hold: the model's context."""
        ...

    def forward(self, tokens: Sequence[int]) -> Logits:
        """Append `tokens` (at least one) to the cache and return logits [len(tokens), vocab].

        Row i scores the token that follows `tokens[i]`. The array may be overwritten by the next
        pass. Raises `SessionError` when the cache has no room.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens. Raises `SessionError` if there are fewer."""
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...


def catch_up(session: Session, tokens: Sequence[int]) -> Logits:
    """Feed the tokens that the session's cache lacks; at least one must be lacking.

    Returns the logits of the last pass, [n, vocab] with n of `PREFILL_CHUNK` at most: the last row
    scores the token after `tokens`.
    """
    pending = tokens[session.length :]
    if not pending:
        raise SessionError(f"nothing to feed: the cache already holds all {len(tokens)} tokens")
    for start in range(0, len(pending), PREFILL_CHUNK):
        logits = session.forward(pending[start : start + PREFILL_CHUNK])
    return logits


def check_rollback(current: int, length: int) -> None:
    """Refuse a rollback target outside 0..current."""
    if not 0 <= length <= current:
        raise SessionError(f"cannot roll back to {length}: the KV cache holds {current} tokens")


def check_room(current: int, num_tokens: int, max_length: int) -> None:
    """Refuse a pass over no tokens, or over more tokens than the cache has room for."""
    if num_tokens < 1:
        raise SessionError("a forward pass needs at least one token")
    if current + num_tokens > max_length:
        raise SessionError(
            f"the KV cache holds {current} of {max_length} tokens: no room for {num_tokens} more"
        )
