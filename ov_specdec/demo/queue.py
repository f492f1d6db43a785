"""Runs of several visitors, one at a time; a visitor may cancel their own."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from ov_specdec.demo.cancellation import Cancellation, Cancellations
from ov_specdec.demo.turns import Turns

WAITING = "Waiting for another visitor's run to end \N{HORIZONTAL ELLIPSIS}"
LOADING = "Loading models \N{HORIZONTAL ELLIPSIS}"
STOPPED, DONE = "Stopped.", "Done."

State = TypeVar("State")
States = Generator[tuple[State, str], None, None]
"""States to show, each with a line of status."""


@dataclass(frozen=True)
class RunQueue:
    """The current run and waiting ones."""

    runs: Cancellations = field(default_factory=Cancellations)
    turns: Turns = field(default_factory=Turns)

    def run(
        self, visitor: str, state: State, work: Callable[[Cancellation], States[State]]
    ) -> States[State]:
        """Wait for earlier runs, then run `work`. state: shown meanwhile."""
        cancellation, turn = self.runs.start(visitor), self.turns.join()
        try:
            if not turn.is_set():
                yield state, WAITING
                cancellation.calls(turn.set)
                turn.wait()
            if not cancellation.is_set():
                # The next run needs the models, even if this visitor has just left.
                with closing(work(cancellation)) as states:
                    for state, line in states:
                        yield state, line
            yield state, STOPPED if cancellation.is_set() else DONE
        finally:
            self.turns.leave(turn)
            self.runs.end(visitor, cancellation)

    def cancel(self, visitor: str) -> None:
        """End the visitor's running generations within one pass, and waiting ones at once."""
        self.runs.cancel(visitor)

    def cancel_all(self) -> None:
        """End all runs."""
        self.runs.cancel_all()
