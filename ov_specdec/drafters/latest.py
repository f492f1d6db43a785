"""A draft model's cache that holds the latest tokens, as many as its context has room for."""

from collections.abc import Sequence

from ov_specdec.runner.base import ForwardOutput
from ov_specdec.runner.cached_sequence import CachedSequence, Passes


class LatestTokens:
    """Holds a sequence, or the end of it where the draft model's context is shorter.

    Implements `DraftCache`. When the context is full, it begins anew with the latest half of it:
    while a text grows each token is read twice at most, and of a long prompt half a context is
    read. What the draft does not see may make its draft tokens worse, and nothing else: they are
    verified like any others. Source: drafting from a window of the KV cache, Sun et al. (TriForce,
    arXiv 2404.11912).
    """

    def __init__(self, cache: CachedSequence) -> None:
        self._cache = cache
        self._start = 0

    def room(self, tokens: Sequence[int]) -> int:
        """How many draft tokens may follow `tokens`; at least one."""
        if self._cache.room(len(tokens) - self._start) < 1:
            self._start = len(tokens) - max(self._cache.runner.max_length // 2, 1)
            self._cache.free()  # it goes on to another sequence
        return self._cache.room(len(tokens) - self._start)

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """See `CachedSequence`. tokens: those that `room` was last asked about, or their first."""
        latest = tokens[self._start :] if self._start else tokens
        return self._cache.advance(latest, draft_tokens, num_rows)
