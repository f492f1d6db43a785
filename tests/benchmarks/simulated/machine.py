"""A machine that takes the time that a cost curve says, and the rounds of a text on it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Protocol

from ov_specdec.planning.costs import CostCurve
from ov_specdec.planning.draft_length import NO_PLAN, Offers, Plan, Policy
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.results.stats import RoundStats
from tests.support.rounds import step_of


@dataclass(frozen=True)
class Drafted:
    """What was drafted in a round, and how much of it is right.

    takes_passes: whether it took a pass of a draft model for each token.
    """

    num_drafted: int = 0
    num_accepted: int = 0
    plan: Plan = NO_PLAN
    source: str = ""
    takes_passes: bool = False
    confidences: tuple[float, ...] = ()
    match_confidence: float | None = None
    declined: tuple[str, float, bool] | None = None


class Text(Protocol):
    """An output, and what is drafted of it. prompt, size: tokens before it, and of it."""

    prompt: int
    size: int

    def draft(self, done: int, plan: Callable[[Offers], Plan], generator: Random) -> Drafted:
        """What is drafted in the place of token `done`. plan: answers who drafts."""
        ...


@dataclass(frozen=True)
class Machine:
    """A machine on which passes take what the curve says, in any unit.

    noise: relative deviation of what is seen of a pass.
    """

    curve: CostCurve
    noise: float = 0.0

    def drafting(self, drafted: Drafted, *, is_complete: bool) -> float:
        """Seconds of drafting. is_complete: all of the last draft was accepted."""
        if not drafted.takes_passes or not drafted.num_drafted:
            return 0.0
        step, again = self.curve.drafting
        return drafted.num_drafted * step + is_complete * again

    def passing(self, size: int, last_size: int) -> float:
        """Seconds of a pass of the main model, after one of another size or of the same."""
        changed = size != last_size and size not in self.curve.main.static
        return self.curve.main.at(size) + changed * self.curve.main.change

    def disturb(self, seconds: float, generator: Random) -> float:
        """What is seen of so many seconds."""
        return seconds * max(generator.gauss(1.0, self.noise), 0.5)


class Alone:
    """The questions of a round of a sequence that has the models to itself, as `Engine` does it."""

    def __init__(self, planner: Planner, policy: Policy) -> None:
        self._planner, self._policy = planner, policy
        self._has_asked = False

    def plan(self, ask: Offers) -> Plan:
        """How far it may draft."""
        self._has_asked = True
        answer = self._policy.answer(ask)
        return answer if isinstance(answer, Plan) else self._planner.plan([answer], Load())[0]

    def pass_size(self, num_tokens: int) -> int:
        """What its pass over so many tokens is padded to."""
        if not self._policy.is_planned:
            return num_tokens
        if not self._has_asked:
            self._planner.plan([], Load())
        return max(num_tokens, self._planner.size)


def rounds_of(
    planner: Planner, policy: Policy, text: Text, machine: Machine, generator: Random
) -> Iterator[tuple[RoundStats, float]]:
    """Yields the record of each round of a text, as seen, and the seconds that it truly took."""
    policy.update(RoundStats(0, 0, 1, 0, 30.0, 0, 30.0, text.prompt, reason="prefill"))
    done, last_size, is_complete = 1, text.prompt, False
    while done < text.size:
        cached = text.prompt + done
        alone = Alone(planner, policy)
        drafted = text.draft(done, alone.plan, generator)
        size = alone.pass_size(drafted.num_drafted + 1)
        spent = (
            machine.drafting(drafted, is_complete=is_complete),
            machine.passing(size, last_size),
        )
        seen = [machine.disturb(seconds, generator) for seconds in spent]
        stats = RoundStats(
            num_drafted=drafted.num_drafted,
            num_accepted=drafted.num_accepted,
            num_generated=drafted.num_accepted + 1,
            draft_seconds=seen[0],
            verify_seconds=seen[1],
            rollback_seconds=0.0,
            seconds=sum(seen),
            pass_tokens=size,
            source=drafted.source,
            planned=drafted.plan.length,
            reason=drafted.plan.reason or "unmatched",
            confidences=drafted.confidences,
            match_confidence=drafted.match_confidence,
            cached_tokens=cached,
            draft_pass_tokens=drafted.num_drafted * drafted.takes_passes,
            declined=drafted.declined,
        )
        policy.update(stats)
        planner.costs.learn(step_of(stats))
        last_size, done = size, done + drafted.num_accepted + 1
        is_complete = 0 < drafted.num_drafted == drafted.num_accepted
        yield stats, sum(spent)
