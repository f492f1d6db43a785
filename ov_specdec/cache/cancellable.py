"""A session whose next pass can be called off from another thread."""

from collections.abc import Sequence
from threading import Event

from ov_specdec.cache.session import Session
from ov_specdec.logits import Logits


class Cancelled(Exception):  # noqa: N818 - no error: somebody asked for it
    """A pass was not begun because its generation was cancelled."""


class CancellableSession:
    """Passes on what it is asked, until `cancelled` is set. Implements `Session`.

    Long prompts are read in several passes, and drafting takes one per candidate: so a generation
    ends within one pass, wherever it is.
    """

    def __init__(self, session: Session, cancelled: Event) -> None:
        self._session = session
        self._cancelled = cancelled

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return self._session.length

    @property
    def max_length(self) -> int:
        """Number of tokens that the cache can hold."""
        return self._session.max_length

    def forward(self, tokens: Sequence[int], num_rows: int | None = None) -> Logits:
        """As the session does; raises `Cancelled` instead once the generation is cancelled."""
        if self._cancelled.is_set():
            raise Cancelled
        return self._session.forward(tokens, num_rows)

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        self._session.rollback(length)

    def reset(self) -> None:
        """Forget everything."""
        self._session.reset()
