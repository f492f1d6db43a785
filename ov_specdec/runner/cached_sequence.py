"""One sequence in a KV cache, and the tokens of it that the cache holds."""

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from numpy.typing import NDArray

from ov_specdec.baseline import common_prefix
from ov_specdec.cache.longrope import Beyond
from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits
from ov_specdec.runner.base import Runner, Span
from ov_specdec.stats import Stopwatch

PREFILL_CHUNK = 512
"""Tokens of prompts that a pass of either model reads at most: bounds what it needs beside the KV
cache, and how long those wait who come or are cancelled meanwhile."""

T = TypeVar("T")
Passes = Generator["CachedSequence", None, T]
"""A coroutine that waits for passes: it yields the sequence whose tokens are to be fed."""


@dataclass(frozen=True)
class Pass:
    """What `CachedSequence.advance` waited for.

    logits: [num_rows, vocab]; may be overwritten by the next pass. num_tokens: tokens that were
    fed. num_cached: those that were in the cache before. num_sequences: those that the last of the
    passes extended. rollback_seconds: time that it took to forget others.
    """

    logits: Logits
    num_tokens: int
    num_cached: int
    num_sequences: int
    rollback_seconds: float


class CachedSequence:
    """A sequence that is told what its KV cache is to hold, and is fed only what that lacks.

    It keeps the ids that the cache holds. Rejected candidates, a draft model that lags behind, what
    an error left over and a cache that was given up for other sequences are one case: what differs
    from what is wanted is rolled back, the rest is fed. What crosses the border of a model is read
    again. namespace: it shares its beginning with sequences of the same one.
    """

    def __init__(self, runner: Runner, namespace: Hashable = None) -> None:
        self.runner = runner
        self._namespace = namespace
        self._is_beyond = False
        self._session = runner.open(namespace)
        self._cached: list[int] = []
        # So many cached tokens were found to be the sequence's own, and are not compared again.
        self._settled = 0
        # What is wanted: the sequence itself, which its owner extends, and what may not stay.
        self._sequence: Sequence[int] = ()
        self._candidates: Sequence[int] = ()
        self._num_rows = 0
        # Of the present `advance`: tokens cached before it, those fed, and its result.
        self._num_cached = self._num_fed = self._num_sequences = 0
        self._logits: Logits | None = None

    @property
    def tokens(self) -> list[int]:
        """The ids that the KV cache holds."""
        return self._cached.copy()

    @property
    def length(self) -> int:
        """Number of tokens that the KV cache holds."""
        return len(self._cached)

    @property
    def num_pending(self) -> int:
        """Tokens that are wanted and not cached."""
        return max(len(self._sequence) + len(self._candidates) - len(self._cached), 0)

    @property
    def num_lacking(self) -> int:
        """Those of them whose rows are not wanted."""
        return max(self.num_pending - self._num_rows, 0)

    def room(self, num_tokens: int) -> int:
        """How many candidates may follow so many tokens; the last of them need not be fed.

        None of those that are fed lies beyond the border if the tokens do not.
        """
        most, border = max_tokens(self.runner), self.runner.border
        if border is not None and num_tokens <= border:
            most = min(most, border)
        return most + 1 - num_tokens

    def advance(
        self, tokens: Sequence[int], candidates: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[Pass]:
        """Have `tokens` and then `candidates` cached; the logits of the last `num_rows` of them.

        tokens: the sequence so far, beginning with those of the last call; only what was added
        since then is compared with the cache. It may grow: what is cached of it in the end is left
        to sequences that begin likewise. candidates: tokens that may not stay. num_rows: None for a
        row that scores the first candidate, and one after each of them. Tokens whose rows are
        wanted are fed again where they are cached already. All are computed as those of a sequence
        of that length are: `room` says how many candidates that suits.
        """
        if num_rows is None:
            num_rows = len(candidates) + 1
        total = len(tokens) + len(candidates)
        if not 1 <= num_rows <= total:
            raise SessionError(f"{num_rows} rows of logits were asked for, of {total} tokens")
        watch = Stopwatch()
        self._sequence, self._candidates, self._num_rows = tokens, candidates, num_rows
        self._logits, self._num_fed = None, 0
        self._choose_side(total)
        self._forget_others(total - num_rows)
        if not self._cached:
            self.adopt()
        rollback_seconds = watch.lap()
        while self._logits is None:
            yield self
        self._settled = len(tokens)
        self._session.settle(tokens, len(tokens) - 1)
        return Pass(
            self._logits, self._num_fed, self._num_cached, self._num_sequences, rollback_seconds
        )

    def span(self, limit: int, padding: int = 0) -> Span:
        """The next pass: all that is pending, or `limit` tokens of it where that is less.

        Tokens whose rows are wanted are fed at once. padding: tokens to add after the last one, as
        far as there is room; they are rolled back like candidates.
        """
        self._agree_with_session()
        start, rows = len(self._cached), self._num_rows
        if not self._num_fed:
            self._num_cached = start
        if self.num_pending > max(limit, rows):
            size = max(min(limit, self.num_pending - rows), 1)
            return Span(self._session, self._wanted(start, start + size), 1)
        end = start + self.num_pending
        tokens = self._wanted(start, end)
        tokens += tokens[-1:] * min(padding, max_tokens(self.runner) - end)
        return Span(self._session, tokens, rows + start + len(tokens) - end)

    def fed(self, span: Span, logits: Logits, num_sequences: int) -> None:
        """A pass over this span, and those of other sequences, has given these logits."""
        self._num_sequences = num_sequences
        self._cached += span.tokens
        self._num_fed += len(span.tokens)
        if not self.num_pending:
            self._logits = logits[: self._num_rows]

    def adopt(self) -> None:
        """Hold what other sequences share of what is wanted; nothing is cached before.

        The last token is fed again in any case, since the next row that is wanted may be its own.
        """
        total = len(self._sequence) + len(self._candidates)
        shared = min(total - self._num_rows, len(self._sequence) - 1)
        num_adopted = self._session.adopt(self._sequence[: max(shared, 0)])
        self._cached = list(self._sequence[:num_adopted])
        self._settled = num_adopted

    def leave(self) -> None:
        """Give the memory back; until others need it, what is cached of the sequence is found."""
        self._agree_with_session()
        own = common_prefix(self._cached, self._sequence)
        left, self._cached, self._settled = self._cached[:own], [], 0
        self._session.leave(left)

    def drop(self) -> None:
        """Give the memory back, and leave nothing to others."""
        self._cached, self._settled = [], 0
        self._session.drop()

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """The tensors of the KV cache, for `restore`. See `Session`."""
        return self._session.read_kv()

    def restore(self, tokens: Sequence[int], tensors: Mapping[str, NDArray[Any]]) -> None:
        """Hold `tokens` again, whose tensors `read_kv` gave; `SessionError` if they do not fit."""
        self.drop()
        self._choose_side(len(tokens))
        self._session.write_kv(tensors, len(tokens))
        self._cached, self._sequence = list(tokens), tokens
        self._settled = len(tokens)

    def _choose_side(self, num_tokens: int) -> None:
        """Begin anew where a sequence of so many tokens lies on the other side of the border."""
        border = self.runner.border
        if border is None or (num_tokens > border) is self._is_beyond:
            return
        self.leave()
        self._is_beyond = not self._is_beyond
        namespace = Beyond(self._namespace) if self._is_beyond else self._namespace
        self._session = self.runner.open(namespace)

    def _wanted(self, start: int, end: int) -> list[int]:
        """The wanted tokens in these places."""
        after = max(start - len(self._sequence), 0), max(end - len(self._sequence), 0)
        return [*self._sequence[start:end], *self._candidates[slice(*after)]]

    def _forget_others(self, last: int) -> None:
        """Roll back to the tokens that are wanted, at most the first `last` of them."""
        self._agree_with_session()
        start = min(self._settled, last)
        wanted = self._wanted(start, max(len(self._cached), start))
        self._keep(min(start + common_prefix(self._cached[start:], wanted), last))

    def _agree_with_session(self) -> None:
        """An error may have emptied the session; an interrupt may leave it tokens not counted."""
        self._keep(min(len(self._cached), self._session.length))

    def _keep(self, length: int) -> None:
        if self._session.length > length:
            self._session.rollback(length)
        del self._cached[length:]
        self._settled = min(self._settled, length)


def max_tokens(runner: Runner) -> int:
    """Tokens that one sequence can have: its model's context, or the memory for KV caches."""
    capacity = runner.capacity
    return runner.max_length if capacity is None else min(runner.max_length, capacity)


def run(caches: Sequence[CachedSequence], spans: Sequence[Span]) -> None:
    """One pass over a span of each of these sequences, which are all of one model."""
    for cache, span, logits in zip(caches, spans, caches[0].runner.run(spans), strict=True):
        cache.fed(span, logits, len(spans))


def alone(steps: Passes[T]) -> T:
    """Run a coroutine to its end: each pass that it waits for holds one sequence."""
    while True:
        try:
            cache = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        run([cache], [cache.span(PREFILL_CHUNK)])
