"""`CachedSequence`: one sequence with its KV cache, which is fed only missing tokens."""

from collections.abc import Generator, Hashable, Mapping, Sequence
from sys import maxsize
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ov_specdec.cache.slot import LongRopeNamespace, common_prefix
from ov_specdec.errors import OptionError, SessionError
from ov_specdec.runner.base import ForwardOutput, HiddenStates, HiddenStatesReader, Runner, Span
from ov_specdec.sampling.logits import Logits

PREFILL_CHUNK = 512
"""Maximum tokens of a prefill pass: bounds its memory besides the KV cache, and the wait of new and
cancelled sequences."""

T = TypeVar("T")
Passes = Generator["CachedSequence", None, T]
"""A coroutine that waits for forward passes: it yields the sequence to feed."""


class CachedSequence:
    """A sequence that takes the needed content of its KV cache, and feeds only what is missing.

    It keeps the cached ids. Rejected draft tokens, a draft model that lags behind, an error and a
    freed cache are one case: cached ids that differ from the needed ones are rolled back, and the
    rest is fed. With LongRoPE, a sequence that exceeds the original context length is prefilled
    again. namespace: of its cached prefix. readers: drafters that read its hidden states;
    `OptionError` if the model has none. num_prompt_tokens: what the request came with; None: all
    but draft tokens.
    """

    def __init__(
        self,
        runner: Runner,
        namespace: Hashable = None,
        readers: Sequence[HiddenStatesReader] = (),
        num_prompt_tokens: int | None = None,
    ) -> None:
        if readers and runner.hidden_size is None:
            raise OptionError(
                f"the drafter {type(readers[0]).__name__} reads hidden states, and this main model "
                "has only logits: use a model with such an output, or another drafter"
            )
        self.runner = runner
        self.readers = readers
        self._takes_states = bool(readers)
        self._num_prompt_tokens = num_prompt_tokens
        self._namespace = namespace
        self._slot = runner.open(namespace)
        self._cached: list[int] = []
        # The first cached tokens that are known to equal the sequence's, and need no comparison.
        self._num_compared = 0
        # The needed ids: the sequence itself, which its owner extends, and draft tokens.
        self._sequence: Sequence[int] = ()
        self._draft_tokens: Sequence[int] = ()
        self._num_rows = 0
        # The first of those that are read as a prompt, and the least of these in a pass with some.
        self._num_read, self._least = maxsize, 1
        # Of the current `advance`: tokens cached before it, fed tokens, passes, and its result.
        self._num_cached = self._num_fed = self._num_passes = self._num_sequences = 0
        self._logits: Logits | None = None
        self._hidden_states: HiddenStates | None = None
        # Fed tokens that readers have not observed: index, tokens and hidden states.
        self._unobserved: list[tuple[int, Sequence[int], HiddenStates]] = []

    @property
    def tokens(self) -> list[int]:
        """The cached ids."""
        return self._cached.copy()

    @property
    def length(self) -> int:
        """Number of cached tokens."""
        return len(self._cached)

    @property
    def num_pending(self) -> int:
        """Needed tokens that are not cached."""
        return max(len(self._sequence) + len(self._draft_tokens) - len(self._cached), 0)

    @property
    def num_prefill(self) -> int:
        """Those of them before the ones whose rows are needed."""
        return max(self.num_pending - self._num_rows, 0)

    def room(self, num_tokens: int) -> int:
        """Maximum tokens that may follow `num_tokens`; the last need not be fed.

        With LongRoPE, all fed draft tokens have the same rotary factors.
        """
        most, original = max_tokens(self.runner), self.runner.original_context
        if original is not None and num_tokens <= original:
            most = min(most, original)
        return min(most - num_tokens, self._max_draft_tokens) + 1

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """Cache `tokens` and then `draft_tokens`. Returns logits of the last `num_rows` of them.

        tokens: the sequence so far, which begins with that of the last call; only new tokens are
        compared with the cache. At the end its cached part stays for sequences with the same
        prefix. draft_tokens: tokens that may be rolled back. num_rows: None for a row that scores
        the first draft token, and one after each of them. Cached tokens whose rows are needed are
        recomputed. `room` bounds the number of draft tokens.
        """
        if num_rows is None:
            num_rows = len(draft_tokens) + 1
        total = len(tokens) + len(draft_tokens)
        if not 1 <= num_rows <= total:
            raise SessionError(f"{total} tokens cannot give {num_rows} rows of logits")
        begin = perf_counter()
        self._need(tokens, draft_tokens)
        self._num_rows, self._logits, self._num_fed, self._num_passes = num_rows, None, 0, 0
        if self.runner.original_context is not None:
            self._choose_factors(total, self.runner.original_context)
        self._rollback_others(total - num_rows)
        if not self._cached:
            self.match_prefix()
        rollback_seconds = perf_counter() - begin
        while self._logits is None:
            yield self
            if self._unobserved:
                self._observe()
        self._num_compared = len(tokens)
        # The next call may recompute the last ones.
        self._slot.commit(tokens, min(len(tokens) - self._least, self._num_read))
        counts = self._num_fed, self._num_cached, self._num_passes, self._num_sequences
        return ForwardOutput(self._logits, *counts, rollback_seconds)

    def observe_accepted(self, num_accepted: int) -> None:
        """Pass hidden states of accepted draft tokens of the last `advance` to readers."""
        if self._hidden_states is not None and num_accepted:
            states = self._hidden_states[1 : num_accepted + 1]  # after the row of the last token
            for reader in self.readers:
                reader.observe(self._num_compared, self._draft_tokens[:num_accepted], states)

    def span(self, limit: int) -> Span:
        """The span for the next pass: up to `limit` pending tokens, and one more of a prompt.

        Tokens whose rows are needed are fed together.
        """
        self._agree_with_slot()
        start, rows, size = len(self._cached), self._num_rows, self.num_pending
        if not self._num_fed:
            self._num_cached = start
        if size > max(limit, rows) and (part := self._part(limit, size - rows)) < size:
            size, rows = part, 1
        tokens = self._needed(start, start + size)
        states = None
        if self._takes_states:
            states = np.empty((len(tokens), self.runner.hidden_size or 0), np.float32)
        num_generated = min(max(start + size - self._num_read, 0), size)
        features = self.features(start, start + size)
        return Span(self._slot, tokens, rows, num_generated, states, features)

    def features(self, start: int, end: int) -> HiddenStates | None:  # noqa: ARG002
        """Hidden states to read with the tokens in these places; None: zeros."""
        return None

    def fed(self, span: Span, logits: Logits, num_sequences: int) -> None:
        """Take the logits of a pass over this span, and those of other sequences."""
        self._num_sequences = num_sequences
        if span.hidden_states is not None:
            self._unobserved.append((len(self._cached), span.tokens, span.hidden_states))
            self._hidden_states = span.hidden_states[len(span.tokens) - span.num_rows :]
        self._cached += span.tokens
        self._num_fed += len(span.tokens)
        self._num_passes += 1
        if not self.num_pending:
            self._logits = logits

    def match_prefix(self) -> None:
        """If the cache is empty, reuse the cached prefix of the needed tokens.

        The last token is always recomputed, since its row may be needed next.
        """
        if self._cached:
            return
        total = len(self._sequence) + len(self._draft_tokens)
        of_prompt = self._num_read - self._least
        shared = min(total - self._num_rows, len(self._sequence) - 1, of_prompt)
        tokens = self._sequence[: max(shared, 0)]
        matched = kept = self._slot.match_prefix(tokens)
        for reader in self.readers:
            kept = reader.match_prefix(tokens[:kept])
        if kept < matched:  # blocks that others share cannot be rolled back
            self._slot.free(tokens[:matched])
            matched = self._slot.match_prefix(tokens[:kept])
        self._cached = list(tokens[:matched])
        self._num_compared = matched

    def num_missing(self, tokens: Sequence[int]) -> int:
        """How many of these tokens are not cached, about, nor kept of an earlier sequence."""
        if self.runner.original_context is not None:
            self._choose_factors(len(tokens), self.runner.original_context)
        return max(len(tokens) - (self.length or self._slot.num_kept(tokens)), 0)

    def hold(self, tokens: Sequence[int]) -> int:
        """The length of the cached prefix of these tokens; reuses a shared one if empty.

        The last token is excluded, as in `match_prefix`.
        """
        if not self._cached:
            self._need(tokens)
            self.match_prefix()
        return common_prefix(self._cached, tokens)

    def keep(self, length: int) -> None:
        """Drop all but the first `length` tokens, though the next ones may be the same."""
        self._agree_with_slot()
        if length < len(self._cached):
            self._rollback(length)

    def reopen(self, namespace: Hashable) -> None:
        """Free the cache, and begin another sequence in another namespace."""
        self.free()
        self._namespace, self._slot = namespace, self.runner.open(namespace)
        self._sequence, self._draft_tokens, self._num_rows = (), (), 0

    def free(self) -> None:
        """Free the cache; its content stays in the prefix cache until evicted."""
        self._agree_with_slot()
        own = min(common_prefix(self._cached, self._sequence), self._num_read)
        left, self._cached, self._num_compared = self._cached[:own], [], 0
        self._slot.free(left)

    def discard(self) -> None:
        """Free the cache without keeping its content."""
        self._cached, self._num_compared = [], 0
        self._slot.free()

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """The tensors of the KV cache, for `restore`. See `Runner`."""
        return self.runner.read_kv(self._slot)

    def restore(self, tokens: Sequence[int], tensors: Mapping[str, NDArray[Any]]) -> None:
        """Restore `tokens` from tensors of `read_kv`; `SessionError` if they do not fit."""
        self.discard()
        if self.runner.original_context is not None:
            self._choose_factors(len(tokens), self.runner.original_context)
        self.runner.write_kv(self._slot, tensors, len(tokens))
        self._need(tokens)
        self._cached, self._num_compared = list(tokens), len(tokens)

    @property
    def _max_draft_tokens(self) -> int:
        limit = self.runner.max_draft_tokens
        return self.runner.max_length if limit is None else limit

    def _need(self, tokens: Sequence[int], draft_tokens: Sequence[int] = ()) -> None:
        """Set the needed ids, and how many of them are read as a prompt."""
        self._sequence, self._draft_tokens = tokens, draft_tokens
        self._num_read, self._least = maxsize, 1
        if self.runner.separates_generated:
            num_read = min(len(tokens), self._num_prompt_tokens or len(tokens))
            self._num_read, self._least = num_read if num_read > 1 else 0, 2

    def _part(self, limit: int, most: int) -> int:
        """Tokens of the next pass: up to `limit`, and one more of a prompt.

        None of a prompt is left alone. With more than `most`, those whose rows are needed would not
        stay together: then all pending ones are fed.
        """
        left, part = self._num_read - len(self._cached), max(min(limit, most), 1)
        if part < left and min(part, left - part) < self._least:
            part = left if left < 4 else 2 if part == 1 else part - 1
        return part if part <= most else self.num_pending

    def _observe(self) -> None:
        """Pass hidden states of fed tokens to readers, except for unverified draft tokens."""
        for start, tokens, states in self._unobserved:
            num_own = max(len(self._sequence) - start, 0)
            for reader in self.readers:
                reader.observe(start, tokens[:num_own], states[:num_own])
        self._unobserved.clear()

    def _choose_factors(self, num_tokens: int, original: int) -> None:
        """Restart if a sequence of `num_tokens` tokens has other rotary factors (LongRoPE)."""
        has_long_rope = num_tokens > original
        if has_long_rope is not self._slot.has_long_rope:
            self.free()
            namespace = LongRopeNamespace(self._namespace) if has_long_rope else self._namespace
            self._slot = self.runner.open(namespace)

    def _needed(self, start: int, end: int) -> list[int]:
        after = max(start - len(self._sequence), 0), max(end - len(self._sequence), 0)
        return [*self._sequence[start:end], *self._draft_tokens[slice(*after)]]

    def _rollback_others(self, last: int) -> None:
        """Roll back tokens that are not needed, and those after the first `last`."""
        self._agree_with_slot()
        start = min(self._num_compared, last)
        if fed := self._cached[start:]:
            start += common_prefix(fed, self._needed(start, start + len(fed)))
        start = min(start, last)
        if 0 < self._num_read - start < self._least:
            start -= 1
        if start < len(self._cached):
            self._rollback(start)

    def _agree_with_slot(self) -> None:
        """Match the slot after an error that emptied it, or an interrupt that left more tokens."""
        if self._slot.length != len(self._cached):
            self._rollback(min(len(self._cached), self._slot.length))

    def _rollback(self, length: int) -> None:
        if self._slot.length > length:
            self._slot.rollback(length)
            length = self._slot.length
        del self._cached[length:]
        self._num_compared = min(self._num_compared, length)


def max_tokens(runner: Runner) -> int:
    """Maximum tokens of one sequence, by its model's context and the memory for KV caches."""
    capacity = runner.capacity
    return runner.max_length if capacity is None else min(runner.max_length, capacity)


def forward(
    caches: Sequence[CachedSequence], spans: Sequence[Span], padding: Sequence[Span] = ()
) -> None:
    """Run one pass over a span of each of these sequences of one model, and spare rows."""
    rows = caches[0].runner.forward([*spans, *padding])
    for cache, span, logits in zip(caches, spans, rows, strict=False):
        cache.fed(span, logits, len(spans))


def alone(steps: Passes[T]) -> T:
    """Run a coroutine to its end, with a pass over one sequence each time that it waits."""
    while True:
        try:
            cache = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        forward([cache], [cache.span(PREFILL_CHUNK)])
