"""A draft model's cache that takes the main model's ids."""

from collections.abc import Sequence

from ov_specdec.drafters.latest import LatestTokens
from ov_specdec.runner.base import ForwardOutput
from ov_specdec.runner.cached_sequence import CachedSequence, Passes
from ov_specdec.text.pairing import TokenizerPair


class TranslatedCache:
    """Holds a sequence in the draft model's ids. Implements `DraftCache`, except for draft tokens.

    Tokens of the sequence are the main model's ids, draft tokens the draft's own. tokens: the
    sequence's first tokens, translated at once.
    """

    def __init__(
        self, cache: CachedSequence, tokenizers: TokenizerPair, tokens: Sequence[int] = ()
    ) -> None:
        self._cache = LatestTokens(cache)
        self._translation = tokenizers.translation()
        self._translation.read(tokens)

    @property
    def rest(self) -> bytes:
        """Bytes at the end of the sequence that are not cached: part of a character."""
        return self._translation.rest

    def room(self, tokens: Sequence[int]) -> int:
        """Maximum number of draft tokens; none if no token of the sequence has a draft id."""
        self._translation.read(tokens)
        return self._cache.room(self._translation.ids) if self._translation.ids else 0

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """See `CachedSequence`. tokens: main ids; draft_tokens: draft ids; logits: the draft's."""
        self._translation.read(tokens)
        ids, num_stable = self._translation.ids, self._translation.num_stable
        # The window's ids may change, so they are fed like draft tokens, which can be rolled back.
        wanted = [*ids[num_stable:], *draft_tokens]
        return (yield from self._cache.advance(ids[:num_stable], wanted, num_rows or 1))
