"""From the options of a generation to its draft-length policy."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ov_specdec.options import SAMPLING_OPTIONS, GenerationOptions
from ov_specdec.speculation.acceptance import DraftHistory
from ov_specdec.speculation.adaptive import AdaptiveLength
from ov_specdec.speculation.cost_model import CostModel
from ov_specdec.speculation.draft_length import ConstantLength, HeuristicLength, Policy


@dataclass(frozen=True)
class LearnedStats:
    """What generations have taught: what rounds cost, and what drafting brought.

    histories: by kind of generation, since the more tokens are left to chance, the fewer
    candidates are accepted.
    """

    costs: CostModel = field(default_factory=CostModel)
    histories: dict[Hashable, DraftHistory] = field(
        default_factory=lambda: defaultdict(DraftHistory)
    )


def make_policy(
    options: GenerationOptions, sources: Sequence[str], learned: LearnedStats
) -> Policy:
    """A new policy for one generation, whose drafter takes candidates from `sources`."""
    threshold = options.assistant_confidence_threshold
    number, schedule = options.num_assistant_tokens, options.num_assistant_tokens_schedule
    if number == "auto":
        # What follows the clock cannot repeat.
        repeats = options.samples and options.seed is not None
        if schedule == "heuristic" or (schedule is None and repeats):
            return HeuristicLength(min_confidence=threshold)
        history = learned.histories[_kind(options)]
        return AdaptiveLength(sources, learned.costs, history, threshold)
    if schedule == "heuristic" and number > 0:
        return HeuristicLength(number, threshold)
    return ConstantLength(number, threshold)


def _kind(options: GenerationOptions) -> Hashable:
    """What acceptance depends on beside the models and the text."""
    if not options.samples:
        return None
    chosen = (getattr(options, name) for name in SAMPLING_OPTIONS)
    return (*chosen, options.assistant_do_sample)
