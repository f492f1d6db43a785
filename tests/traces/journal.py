"""What models have been told, in the order in which it happened, and the time that it took."""

from collections.abc import Sequence
from dataclasses import dataclass, field


class ScriptedError(RuntimeError):
    """What a run has fail; any other error that is no error of `ov_specdec` is a broken run."""


@dataclass(frozen=True)
class Row:
    """One sequence of a pass.

    past: the ids that its KV cache held before. fed: those that it was fed. rows: how many rows of
    logits were asked for, of the last of them; else their places. blocks: its block table, where
    it has one.
    """

    past: Sequence[int]
    fed: Sequence[int]
    rows: int | tuple[int, ...]
    blocks: Sequence[int] = ()


@dataclass(frozen=True)
class Pass:
    """One pass. model: "main" or "draft", and which form or infer request of it. note: the rest."""

    model: str
    variant: str
    rows: Sequence[Row]
    note: str = ""


@dataclass
class Journal:
    """All events since the last reading: passes, and what else was done to a model, in words."""

    events: list[Pass | str] = field(default_factory=list)
    clock: float = 0.0
    """Ticks of passes so far."""
    broken: list[AssertionError] = field(default_factory=list)
    """What no run may do, such as attending to a token in a wrong place."""

    def take(self) -> list[Pass | str]:
        """The events since this was last called."""
        events, self.events = self.events, []
        return events

    def require(self, condition: bool, complaint: str) -> None:
        """Note what no run may do; a core that takes errors for a sequence's own cannot hide it."""
        if not condition:
            self.broken.append(AssertionError(complaint))
            raise self.broken[-1]


def asked_rows(places: Sequence[int], size: int) -> int | tuple[int, ...]:
    """How many of the last of so many places, or which ones where it is not those."""
    last = range(size - len(places), size)
    return len(places) if list(places) == list(last) else tuple(places)
