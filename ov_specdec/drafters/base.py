"""What the engine needs of a drafter."""

from collections.abc import Sequence
from typing import Protocol

from ov_specdec.policy import Planner, Source
from ov_specdec.verify import Draft


class Drafter(Protocol):
    """Proposes candidates for the tokens that come next."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where it takes candidates from; those named first come first."""
        ...

    def propose(self, tokens: Sequence[int], planner: Planner) -> Draft:
        """Candidates to follow `tokens`, as many as the plan allows; none where it has no idea."""
        ...

    def rollback(self, length: int) -> None:
        """Only the first `length` tokens stand: forget whatever was cached beyond them."""
        ...

    def reset(self) -> None:
        """A new text begins."""
        ...
