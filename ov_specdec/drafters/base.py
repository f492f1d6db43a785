"""What the engine needs of a drafter."""

from collections.abc import Sequence
from typing import Protocol

from ov_specdec.verify import Draft


class Drafter(Protocol):
    """Proposes candidates for the tokens that come next."""

    def propose(self, tokens: Sequence[int], num_draft_tokens: int) -> Draft:
        """At most `num_draft_tokens` candidates to follow `tokens`; none where it has no idea."""
        ...

    def rollback(self, length: int) -> None:
        """Only the first `length` tokens stand: forget whatever was cached beyond them."""
        ...

    def reset(self) -> None:
        """A new text begins."""
        ...
