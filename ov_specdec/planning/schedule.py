"""From the options of a generation to its draft-length policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ov_specdec.options import GenerationOptions
from ov_specdec.planning.acceptance import Common
from ov_specdec.planning.costs import NOMINAL, Costs, FixedCurve
from ov_specdec.planning.draft_length import (
    AdaptiveLength,
    Ask,
    ConstantLength,
    HeuristicLength,
    Plan,
    Policy,
)
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.runner.base import Runner
from ov_specdec.stats import RoundStats


@dataclass(frozen=True)
class LearnedStats:
    """What planning knows beyond one generation.

    costs: of passes. greedy, sampled, seeded: what drafting brought in earlier sequences; the more
    is left to chance, the fewer draft tokens are accepted.
    """

    costs: Costs = field(default_factory=lambda: FixedCurve(NOMINAL))
    greedy: Common = field(default_factory=Common)
    sampled: Common = field(default_factory=Common)
    seeded: Common = field(default_factory=Common)


class IsolatedLength:
    """Follows this sequence and an imagined machine, whatever others do. Implements `Policy`."""

    is_planned = False

    def __init__(self, learned: AdaptiveLength) -> None:
        self._learned = learned
        self._planner = Planner(FixedCurve(NOMINAL))

    def answer(self, ask: Ask) -> Plan:
        """The plan of a sequence that is alone."""
        return self._planner.plan([self._learned.answer(ask)], Load())[0]

    def update(self, stats: RoundStats) -> None:
        """Learn what was accepted, and how many rounds have a match."""
        self._learned.update(stats)
        if stats.reason == "unmatched":
            self._planner.plan([], Load())


def follows_itself(options: GenerationOptions, main: Runner) -> bool:
    """Whether drafts may follow nothing but the text's own tokens.

    A seed decides a token by its logits. Where those depend on the pass, a text that is to come out
    the same again needs the same passes.
    """
    return options.is_repeatable_draw and not main.is_proven


def follows_costs(options: GenerationOptions, main: Runner) -> bool:
    """Whether draft lengths depend on what passes cost on this machine.

    They do not where the options fix them, nor where drafts follow the text alone.
    """
    is_auto = options.num_assistant_tokens == "auto"
    return (
        is_auto
        and options.num_assistant_tokens_schedule != "heuristic"
        and not follows_itself(options, main)
    )


def make_policy(
    options: GenerationOptions, sources: Sequence[str], learned: LearnedStats, main: Runner
) -> Policy:
    """A new policy for one generation of a main model, drafted from `sources`."""
    threshold = options.assistant_confidence_threshold
    number, schedule = options.num_assistant_tokens, options.num_assistant_tokens_schedule
    if number != "auto":
        if schedule == "heuristic" and number > 0:
            return HeuristicLength(number, threshold)
        return ConstantLength(number, threshold)
    if schedule == "heuristic":
        return HeuristicLength(min_confidence=threshold)
    if not follows_costs(options, main):
        return IsolatedLength(AdaptiveLength(sources, Common(), threshold))
    common = learned.sampled if options.samples else learned.greedy
    if options.is_repeatable_draw:
        common = learned.seeded
    return AdaptiveLength(sources, common, threshold)
