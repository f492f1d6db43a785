"""How many tokens to draft next."""

from dataclasses import dataclass
from typing import Protocol

from ov_specdec.stats import RoundStats

MAX_DRAFT_LENGTH = 256
"""Longest draft of any policy; all of it is verified in one pass."""

HEURISTIC_START = 5


class Policy(Protocol):
    """Chooses draft lengths; a new one is made for each generation."""

    @property
    def num_draft_tokens(self) -> int:
        """How many tokens to draft in the next round; 0 drafts nothing."""
        ...

    def update(self, stats: RoundStats) -> None:
        """Learn from the round that has just ended."""
        ...


@dataclass(frozen=True)
class ConstantLength:
    """The same length in every round."""

    num_draft_tokens: int

    def update(self, stats: RoundStats) -> None:
        """Nothing to learn."""


@dataclass
class HeuristicLength:
    """Two more after a round in which all candidates stood, else one fewer, at least 1.

    Source: assisted generation in transformers (`num_assistant_tokens_schedule="heuristic"`).
    """

    num_draft_tokens: int = HEURISTIC_START

    def update(self, stats: RoundStats) -> None:
        """Lengthen or shorten; a round without candidates teaches nothing."""
        if stats.num_drafted == 0:
            return
        if stats.num_accepted == stats.num_drafted:
            self.num_draft_tokens = min(self.num_draft_tokens + 2, MAX_DRAFT_LENGTH)
        else:
            self.num_draft_tokens = max(self.num_draft_tokens - 1, 1)
