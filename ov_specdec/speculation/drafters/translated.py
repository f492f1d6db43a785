"""A draft model's cache that is told what to hold in the main model's ids."""

from collections.abc import Sequence
from threading import Event

from ov_specdec.cache.sequence import CachedSequence, Pass
from ov_specdec.text.translation import Translation


class TranslatedCache:
    """Holds a sequence in the draft model's ids. Implements `DraftCache`, but for candidates.

    Tokens of the sequence are the main model's ids, candidates the draft's own.
    """

    def __init__(self, cache: CachedSequence, translation: Translation) -> None:
        self._cache = cache
        self._translation = translation

    @property
    def rest(self) -> bytes:
        """The bytes of the sequence that follow what is cached of it: part of a character."""
        return self._translation.rest

    def begin(self, tokens: Sequence[int], cancelled: Event | None = None) -> None:
        """Turn to another sequence, of main ids."""
        self._translation.begin()
        self._translation.read(tokens)
        self._cache.begin(self._settled(), cancelled)

    def room(self, tokens: Sequence[int]) -> int:
        """How many candidates may follow; none after a sequence of which nothing has an id."""
        self._translation.read(tokens)
        return self._cache.room(self._translation.ids) if self._translation.ids else 0

    def advance(
        self, tokens: Sequence[int], candidates: Sequence[int] = (), num_rows: int | None = None
    ) -> Pass:
        """See `CachedSequence`. tokens: main ids; candidates: draft ids; logits: the draft's."""
        self._translation.read(tokens)
        window = self._translation.ids[self._translation.num_settled :]
        # The window's ids may become others, so they may not stay for good, as candidates may not.
        return self._cache.advance(self._settled(), [*window, *candidates], num_rows or 1)

    def clear(self) -> None:
        """Forget everything."""
        self._cache.clear()

    def _settled(self) -> list[int]:
        return self._translation.ids[: self._translation.num_settled]
