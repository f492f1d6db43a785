"""What the engine needs of a model: one sequence's KV cache, and passes that extend it."""

from collections.abc import Sequence
from typing import Protocol

from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits

ROWS = "row_indices"
"""Input that names the rows of logits to compute, [num_rows]: places in the pass, from 0."""

PREFILL_CHUNK = 512
"""Tokens per pass while a prompt is read: bounds what a pass needs beside the KV cache."""


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

    def forward(self, tokens: Sequence[int], num_rows: int | None = None) -> Logits:
        """Append `tokens` (at least one) to the cache and return logits [num_rows, vocab].

        num_rows: rows are computed for the last so many tokens, from 1 to len(tokens); None: for
        all. A row scores the token that follows its own. The array may be overwritten by the next
        pass. Raises `SessionError` when the cache has no room.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens. Raises `SessionError` if there are fewer."""
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...


def catch_up(session: Session, tokens: Sequence[int], num_rows: int = 1) -> Logits:
    """Feed the tokens that the session's cache lacks, at least `num_rows` of them, in chunks.

    Returns logits [num_rows, vocab]; the last row scores the token after `tokens`.
    """
    pending = tokens[session.length :]
    if len(pending) < num_rows:
        raise SessionError(
            f"{num_rows} rows of logits were asked for, but the cache lacks only {len(pending)} of "
            f"{len(tokens)} tokens"
        )
    while len(pending) > PREFILL_CHUNK:
        size = min(PREFILL_CHUNK, len(pending) - num_rows)
        session.forward(pending[:size], 1)
        pending = pending[size:]
    return session.forward(pending, num_rows)


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


def count_rows(num_tokens: int, num_rows: int | None) -> int:
    """How many rows of logits a pass gives; refuses more of them than tokens, or none."""
    if num_rows is None:
        return num_tokens
    if not 1 <= num_rows <= num_tokens:
        raise SessionError(f"a pass over {num_tokens} tokens cannot give {num_rows} rows of logits")
    return num_rows
