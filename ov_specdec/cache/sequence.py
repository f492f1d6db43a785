"""A sequence that is fed to a session, and the tokens of it that the KV cache holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from numpy.typing import NDArray

from ov_specdec.baseline import common_prefix
from ov_specdec.cache.session import Session
from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits
from ov_specdec.stats import Stopwatch

PREFILL_CHUNK = 512
"""Tokens per pass while a prompt is read: bounds what a pass needs beside the KV cache."""


class Cancelled(Exception):  # noqa: N818 - no error: somebody asked for it
    """A pass was not begun because its generation was cancelled."""


@dataclass(frozen=True)
class Pass:
    """What `CachedSequence.advance` computed.

    logits: [num_rows, vocab]; may be overwritten by the next pass. num_tokens: tokens that were
    fed. num_cached: those that were in the cache before. rollback_seconds: time that it took to
    forget others.
    """

    logits: Logits
    num_tokens: int
    num_cached: int
    rollback_seconds: float


class CachedSequence:
    """A session that is told what its KV cache is to hold, and reads only what it lacks.

    It keeps the ids that the cache holds. Turns of a conversation, rejected candidates, a draft
    model that lags behind and what an error left over are one case: what differs from the sequence
    that is wanted is rolled back, the rest is fed. The session belongs to it alone, and is emptied.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cached: list[int] = []
        # So many cached tokens were found to be the sequence's own, and are not compared again.
        self._settled = 0
        # The sequence itself, which its owner extends.
        self._sequence: Sequence[int] = ()
        self._cancelled = Event()
        session.reset()

    @property
    def tokens(self) -> list[int]:
        """The ids that the KV cache holds."""
        return self._cached.copy()

    @property
    def max_length(self) -> int:
        """Number of tokens that the KV cache can hold: the model's context."""
        return self._session.max_length

    def room(self, tokens: Sequence[int]) -> int:
        """How many candidates may follow `tokens`; the last of them need not be fed."""
        return self.max_length + 1 - len(tokens)

    def begin(self, tokens: Sequence[int], cancelled: Event | None = None) -> None:
        """Turn to another sequence, and hold what is cached of it, by this or by sequences before.

        cancelled: passes raise `Cancelled` instead once it is set.
        """
        self._cancelled = Event() if cancelled is None else cancelled
        own = max(common_prefix(self._cached, known) for known in (self._sequence, tokens))
        left, self._cached, self._settled = self._cached[:own], [], 0
        self._session.leave(left)
        # The last token is fed again where it is cached already, since its logits are wanted.
        self._cached = list(tokens[: self._session.adopt(tokens[:-1])])
        self._settled, self._sequence = len(self._cached), tokens

    def advance(
        self, tokens: Sequence[int], candidates: Sequence[int] = (), num_rows: int | None = None
    ) -> Pass:
        """Have `tokens` and then `candidates` cached; the logits of the last `num_rows` of them.

        tokens: the sequence so far, beginning with those of the last call since `begin`; only what
        was added since then is compared with the cache. It may grow: what is cached of it in the
        end is left to sequences that begin likewise. candidates: tokens that may not stay.
        num_rows: None for a row that scores the first candidate, and one after each of them. Tokens
        whose rows are wanted are fed again where they are cached already. A long prompt is read in
        chunks. After an error, what the cache then holds is known.
        """
        if num_rows is None:
            num_rows = len(candidates) + 1
        total = len(tokens) + len(candidates)
        if not 1 <= num_rows <= total:
            raise SessionError(f"{num_rows} rows of logits were asked for, of {total} tokens")
        last = total - num_rows
        watch = Stopwatch()
        start = min(self._settled, last)
        wanted = [*tokens[start:], *candidates]
        self._keep(min(start + common_prefix(self._cached[start:], wanted), last))
        rollback_seconds = watch.lap()
        pending = wanted[len(self._cached) - start :]
        logits = self._feed(pending, num_rows)
        self._settled, self._sequence = len(tokens), tokens
        self._session.settle(tokens, len(tokens) - 1)
        return Pass(logits, len(pending), total - len(pending), rollback_seconds)

    def clear(self) -> None:
        """Forget everything."""
        self._session.reset()
        self._cached = []
        self._settled, self._sequence = 0, ()

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """The tensors of the KV cache, for `restore`. See `Session`."""
        return self._session.read_kv()

    def restore(self, tokens: Sequence[int], tensors: Mapping[str, NDArray[Any]]) -> None:
        """Hold `tokens` again, whose tensors `read_kv` gave; `SessionError` if they do not fit."""
        self.clear()
        self._session.write_kv(tensors, len(tokens))
        self._cached = list(tokens)
        self._settled, self._sequence = len(tokens), tokens

    def _keep(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        # An interrupt may have left the session with tokens that nobody has counted.
        if self._session.length > length:
            self._session.rollback(length)
        del self._cached[length:]
        self._settled = min(self._settled, length)

    def _feed(self, tokens: list[int], num_rows: int) -> Logits:
        while len(tokens) > max(PREFILL_CHUNK, num_rows):
            size = min(PREFILL_CHUNK, len(tokens) - num_rows)
            self._forward(tokens[:size], 1)
            tokens = tokens[size:]
        return self._forward(tokens, num_rows)

    def _forward(self, tokens: list[int], num_rows: int) -> Logits:
        if self._cancelled.is_set():
            raise Cancelled
        try:
            logits = self._session.forward(tokens, num_rows)
        except BaseException:
            self._keep(self._session.length)
            raise
        self._cached += tokens
        return logits
