"""From the options of a generation to its draft-length policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ov_specdec.costs import NOMINAL, Costs, FixedCurve
from ov_specdec.options import GenerationOptions
from ov_specdec.speculation.acceptance import Common
from ov_specdec.speculation.adaptive import AdaptiveLength
from ov_specdec.speculation.draft_length import ConstantLength, HeuristicLength, Policy


@dataclass(frozen=True)
class LearnedStats:
    """What planning knows beyond one generation.

    costs: of passes. greedy, sampled: what drafting brought in earlier sequences; the more is left
    to chance, the fewer candidates are accepted.
    """

    costs: Costs = field(default_factory=lambda: FixedCurve(NOMINAL))
    greedy: Common = field(default_factory=Common)
    sampled: Common = field(default_factory=Common)


def follows_costs(options: GenerationOptions) -> bool:
    """Whether draft lengths depend on what passes cost on this machine.

    They do not where the options fix them, nor where a sampled text is to come out the same again:
    then they must follow nothing but its own tokens.
    """
    is_auto = options.num_assistant_tokens == "auto"
    return (
        is_auto
        and options.num_assistant_tokens_schedule != "heuristic"
        and not options.is_repeatable_draw
    )


def make_policy(
    options: GenerationOptions, sources: Sequence[str], learned: LearnedStats
) -> Policy:
    """A new policy for one generation, whose drafter takes candidates from `sources`."""
    threshold = options.assistant_confidence_threshold
    number, schedule = options.num_assistant_tokens, options.num_assistant_tokens_schedule
    if number != "auto":
        if schedule == "heuristic" and number > 0:
            return HeuristicLength(number, threshold)
        return ConstantLength(number, threshold)
    if schedule == "heuristic":
        return HeuristicLength(min_confidence=threshold)
    if not follows_costs(options):
        return AdaptiveLength(sources, FixedCurve(NOMINAL), Common(), threshold)
    common = learned.sampled if options.samples else learned.greedy
    return AdaptiveLength(sources, learned.costs, common, threshold)
