"""`CachedSequence`: one sequence, and the ids of it that a KV cache holds; it is fed the rest."""

from collections.abc import Generator, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ov_specdec.baseline import common_prefix
from ov_specdec.cache.longrope import Beyond
from ov_specdec.errors import OptionError, SessionError
from ov_specdec.logits import Logits
from ov_specdec.runner.base import (
    ForwardOutput,
    HiddenStates,
    HiddenStatesReader,
    Runner,
    Span,
)
from ov_specdec.stats import Stopwatch

PREFILL_CHUNK = 512
"""Tokens of a prefill in one forward pass, at most: bounds what it needs beside the KV cache, and
how long those wait who come or are cancelled meanwhile."""

T = TypeVar("T")
Passes = Generator["CachedSequence", None, T]
"""A coroutine that waits for forward passes: it yields the sequence whose tokens are to be fed."""


class CachedSequence:
    """A sequence that is told what its KV cache is to hold, and is fed only what that lacks.

    It keeps the ids that the cache holds. Rejected draft tokens, a draft model that lags behind,
    what an error left over and a cache that was freed for other sequences are one case: what
    differs from what is wanted is rolled back, the rest is fed. What crosses the border of a model
    is prefilled again. namespace: it shares its prefix with sequences of the same one. readers:
    drafters that read its hidden states; `OptionError` where the model gives none.
    """

    def __init__(
        self,
        runner: Runner,
        namespace: Hashable = None,
        readers: Sequence[HiddenStatesReader] = (),
    ) -> None:
        if readers and runner.hidden_size is None:
            raise OptionError(
                f"the drafter {type(readers[0]).__name__} reads hidden states, and this main model "
                "gives only logits: take a model with such an output, or another drafter"
            )
        self.runner = runner
        self.readers = readers
        self._namespace = namespace
        self._is_beyond = False
        self._slot = runner.open(namespace)
        self._cached: list[int] = []
        # So many cached tokens were found to be the sequence's own, and are not compared again.
        self._num_compared = 0
        # What is wanted: the sequence itself, which its owner extends, and what may not stay.
        self._sequence: Sequence[int] = ()
        self._draft_tokens: Sequence[int] = ()
        self._num_rows = 0
        # Of the present `advance`: tokens cached before it, those fed, and its result.
        self._num_cached = self._num_fed = self._num_sequences = 0
        self._logits: Logits | None = None
        self._hidden_states: HiddenStates | None = None
        # What was fed and readers have not observed: its place, tokens and hidden states.
        self._unobserved: list[tuple[int, Sequence[int], HiddenStates]] = []

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
        return max(len(self._sequence) + len(self._draft_tokens) - len(self._cached), 0)

    @property
    def num_lacking(self) -> int:
        """Those of them whose rows are not wanted."""
        return max(self.num_pending - self._num_rows, 0)

    def room(self, num_tokens: int) -> int:
        """How many draft tokens may follow so many tokens; the last of them need not be fed.

        None of those that are fed lies beyond the border if the tokens do not.
        """
        most, border = max_tokens(self.runner), self.runner.border
        if border is not None and num_tokens <= border:
            most = min(most, border)
        return min(most - num_tokens, self._max_draft_tokens) + 1

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """Have `tokens` and then `draft_tokens` cached; the logits of the last `num_rows` of them.

        tokens: the sequence so far, beginning with those of the last call; only what was added
        since then is compared with the cache. It may grow: what is cached of it in the end is left
        to sequences that begin likewise. draft_tokens: those that may not stay. num_rows: None for
        a row that scores the first draft token, and one after each of them. Tokens whose rows are
        wanted are fed again where they are cached already. All are computed as those of a sequence
        of that length are: `room` says how many draft tokens that suits.
        """
        if num_rows is None:
            num_rows = len(draft_tokens) + 1
        total = len(tokens) + len(draft_tokens)
        if not 1 <= num_rows <= total:
            raise SessionError(f"{num_rows} rows of logits were asked for, of {total} tokens")
        watch = Stopwatch()
        self._sequence, self._draft_tokens, self._num_rows = tokens, draft_tokens, num_rows
        self._logits, self._num_fed = None, 0
        self._choose_side(total)
        self._rollback_unwanted(total - num_rows)
        if not self._cached:
            self.match_prefix()
        rollback_seconds = watch.lap()
        while self._logits is None:
            yield self
            self._observe()
        self._num_compared = len(tokens)
        self.runner.commit(self._slot, tokens, len(tokens) - 1)
        return ForwardOutput(
            self._logits,
            self._num_fed,
            self._num_cached,
            self._num_sequences,
            rollback_seconds,
            self._hidden_states,
        )

    def span(self, limit: int, padding: int = 0) -> Span:
        """For the next pass: all that is pending, or `limit` tokens of it where that is less.

        Tokens whose rows are wanted are fed at once. padding: tokens to add after the last one, as
        far as there is room; they are rolled back like draft tokens.
        """
        self._agree_with_slot()
        start, rows, num_pending = len(self._cached), self._num_rows, self.num_pending
        if not self._num_fed:
            self._num_cached = start
        if num_pending > max(limit, rows):
            size = max(min(limit, num_pending - rows), 1)
            return self._span(self._wanted(start, start + size), 1)
        tokens = self._wanted(start, start + num_pending)
        if padding:
            room = max_tokens(self.runner) - start - num_pending
            spare = min(room, self._max_draft_tokens + 1 - rows)
            tokens += tokens[-1:] * max(min(padding, spare), 0)
        return self._span(tokens, rows + len(tokens) - num_pending)

    def fed(self, span: Span, logits: Logits, num_sequences: int) -> None:
        """A pass over this span, and those of other sequences, has given these logits."""
        self._num_sequences = num_sequences
        if span.hidden_states is not None:
            self._unobserved.append((len(self._cached), span.tokens, span.hidden_states))
            rows = span.hidden_states[len(span.tokens) - span.num_rows :]
            self._hidden_states = rows[: self._num_rows]
        self._cached += span.tokens
        self._num_fed += len(span.tokens)
        if not self.num_pending:
            self._logits = logits[: self._num_rows]

    def match_prefix(self) -> None:
        """Hold what other sequences share of what is wanted, where nothing is cached.

        The last token is fed again in any case, since the next row that is wanted may be its own.
        """
        if self._cached:
            return
        total = len(self._sequence) + len(self._draft_tokens)
        shared = min(total - self._num_rows, len(self._sequence) - 1)
        tokens = self._sequence[: max(shared, 0)]
        for reader in self.readers:
            tokens = tokens[: reader.match_prefix(tokens)]
        matched = self.runner.match_prefix(self._slot, tokens)
        self._cached = list(tokens[:matched])
        self._num_compared = matched

    def hold(self, tokens: Sequence[int]) -> int:
        """How many of these first tokens are cached; where nothing is, hold what others share.

        The last one is not held, as in `match_prefix`: a row of it may be wanted next.
        """
        if not self._cached:
            self._sequence, self._draft_tokens = tokens, ()
            self.match_prefix()
        return common_prefix(self._cached, tokens)

    def free(self) -> None:
        """Give the memory back; until others need it, what is cached of the sequence is found."""
        self._agree_with_slot()
        own = common_prefix(self._cached, self._sequence)
        left, self._cached, self._num_compared = self._cached[:own], [], 0
        self.runner.free(self._slot, left)

    def discard(self) -> None:
        """Give the memory back, and leave nothing to others."""
        self._cached, self._num_compared = [], 0
        self.runner.free(self._slot)

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """The tensors of the KV cache, for `restore`. See `Runner`."""
        return self.runner.read_kv(self._slot)

    def restore(self, tokens: Sequence[int], tensors: Mapping[str, NDArray[Any]]) -> None:
        """Hold `tokens` again, whose tensors `read_kv` gave; `SessionError` if they do not fit."""
        self.discard()
        self._choose_side(len(tokens))
        self.runner.write_kv(self._slot, tensors, len(tokens))
        self._cached, self._sequence = list(tokens), tokens
        self._num_compared = len(tokens)

    @property
    def _max_draft_tokens(self) -> int:
        """How many tokens may be fed and rolled back."""
        limit = self.runner.max_draft_tokens
        return self.runner.max_length if limit is None else limit

    def _span(self, tokens: list[int], num_rows: int) -> Span:
        """A span of these tokens, with a place for hidden states if somebody reads them."""
        size = self.runner.hidden_size if self.readers else None
        states = None if size is None else np.empty((len(tokens), size), np.float32)
        return Span(self._slot, tokens, num_rows, states, len(self._sequence))

    def _observe(self) -> None:
        """Have readers observe what was fed, but for draft tokens, which may not stand."""
        for start, tokens, states in self._unobserved:
            num_own = max(len(self._sequence) - start, 0)
            for reader in self.readers:
                reader.observe(start, tokens[:num_own], states[:num_own])
        self._unobserved.clear()

    def _choose_side(self, num_tokens: int) -> None:
        """Begin anew where a sequence of so many tokens lies on the other side of the border."""
        border = self.runner.border
        if border is None or (num_tokens > border) is self._is_beyond:
            return
        self.free()
        self._is_beyond = not self._is_beyond
        namespace = Beyond(self._namespace) if self._is_beyond else self._namespace
        self._slot = self.runner.open(namespace)

    def _wanted(self, start: int, end: int) -> list[int]:
        """The wanted tokens in these places."""
        after = max(start - len(self._sequence), 0), max(end - len(self._sequence), 0)
        return [*self._sequence[start:end], *self._draft_tokens[slice(*after)]]

    def _rollback_unwanted(self, last: int) -> None:
        """Roll back to the tokens that are wanted, at most the first `last` of them."""
        self._agree_with_slot()
        start = min(self._num_compared, last)
        if fed := self._cached[start:]:
            start += common_prefix(fed, self._wanted(start, start + len(fed)))
        if min(start, last) < len(self._cached):
            self._rollback(min(start, last))

    def _agree_with_slot(self) -> None:
        """An error may have emptied the slot; an interrupt may leave it tokens not counted."""
        if self._slot.length != len(self._cached):
            self._rollback(min(len(self._cached), self._slot.length))

    def _rollback(self, length: int) -> None:
        if self._slot.length > length:
            self.runner.rollback(self._slot, length)
            length = self._slot.length
        del self._cached[length:]
        self._num_compared = min(self._num_compared, length)


def max_tokens(runner: Runner) -> int:
    """Tokens that one sequence can have: its model's context, or the memory for KV caches."""
    capacity = runner.capacity
    return runner.max_length if capacity is None else min(runner.max_length, capacity)


def forward(caches: Sequence[CachedSequence], spans: Sequence[Span]) -> None:
    """One pass over a span of each of these sequences, which are all of one model."""
    for cache, span, logits in zip(caches, spans, caches[0].runner.forward(spans), strict=True):
        cache.fed(span, logits, len(spans))


def alone(steps: Passes[T]) -> T:
    """Run a coroutine to its end: each pass that it waits for holds one sequence."""
    while True:
        try:
            cache = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        forward([cache], [cache.span(PREFILL_CHUNK)])
