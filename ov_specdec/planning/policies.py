"""Makes the draft-length policy from the options of a generation."""

from collections import defaultdict
from dataclasses import dataclass, field

from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import NOMINAL, Costs
from ov_specdec.planning.draft_length import (
    HEURISTIC_START,
    ConstantLength,
    HeuristicLength,
    Offers,
    Plan,
    PlannedLength,
    Policy,
)
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.results.stats import RoundStats
from ov_specdec.runner.base import Runner


@dataclass(frozen=True)
class LearnedStats:
    """The state of planning across generations.

    costs: cost curves of passes. counts: of earlier sequences by their kind ("greedy", "sampled" or
    "seeded"), since acceptance differs between them.
    """

    costs: Costs = field(default_factory=lambda: Costs(NOMINAL))
    counts: dict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))


class IsolatedLength(Policy):
    """Adapts to this sequence and a nominal cost curve alone."""

    def __init__(self) -> None:
        costs = Costs(NOMINAL)
        self._learned = PlannedLength(Counts(), costs)
        self._planner = Planner(costs)

    def answer(self, offers: Offers) -> Plan:
        """The plan of the sequence as if it ran alone."""
        return self._planner.plan([self._learned.answer(offers)], Load()).plans[0]

    def update(self, stats: RoundStats) -> None:
        """Count accepted draft tokens, and rounds with a match."""
        self._learned.update(stats)
        if stats.reason == "unmatched":
            self._planner.plan([], Load())


def follows_itself(options: GenerationOptions, main: Runner) -> bool:
    """Whether draft lengths may depend only on the text's own tokens.

    With a seed, tokens depend on logits. If those depend on the pass, a repeatable text needs the
    same passes.
    """
    return options.is_repeatable_draw and not main.is_verified


def make_policy(options: GenerationOptions, learned: LearnedStats, main: Runner) -> Policy:
    """A new policy for one generation of a main model."""
    number = options.num_assistant_tokens
    if options.num_assistant_tokens_schedule == "heuristic" and number != 0:
        return HeuristicLength(HEURISTIC_START if number == "auto" else number)
    if number != "auto":
        return ConstantLength(number)
    if follows_itself(options, main):
        return IsolatedLength()
    drawn = "seeded" if options.is_repeatable_draw else "sampled"
    return PlannedLength(learned.counts[drawn if options.samples else "greedy"], learned.costs)
