"""A draft model's cache that holds the latest tokens that fit its context."""

from collections.abc import Sequence

from ov_specdec.runner.base import ForwardOutput
from ov_specdec.runner.cached_sequence import CachedSequence, Passes


class LatestTokens:
    """Holds a sequence, or its last tokens if the draft model's context is shorter.

    Implements `DraftCache`. When the context is full, it restarts with the latest half: each token
    is fed twice at most, and of a long prompt only half a context is fed. A shorter context can
    only lower acceptance, since all draft tokens are verified. Source: drafting from a window of
    the KV cache, Sun et al. (TriForce, arXiv 2404.11912).
    """

    def __init__(self, cache: CachedSequence) -> None:
        self._cache = cache
        self._start = 0

    def room(self, tokens: Sequence[int]) -> int:
        """Maximum number of draft tokens after `tokens`; at least one."""
        if self._cache.room(len(tokens) - self._start) < 1:
            self._start = len(tokens) - max(self._cache.runner.max_length // 2, 1)
            self._cache.free()  # the tokens that follow are another sequence
        return self._cache.room(len(tokens) - self._start)

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """See `CachedSequence`. tokens: those of the last call of `room`, or a prefix of them."""
        latest = tokens[self._start :] if self._start else tokens
        return self._cache.advance(latest, draft_tokens, num_rows)
