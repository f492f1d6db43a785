"""Policies of draft lengths: constant, heuristic, or planned; options choose one."""

from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass, field, replace

from ov_specdec.options.generation import MAX_REQUESTED_LENGTH, GenerationOptions
from ov_specdec.planning.acceptance import Acceptance, Counts
from ov_specdec.planning.costs import NOMINAL, CostCurve, Costs
from ov_specdec.planning.plan import EXPECTED, HORIZON, MAX_PLANNED_LENGTH, Estimate, Offers, Plan
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.planning.ranking import Ranking
from ov_specdec.results.stats import RoundStats
from ov_specdec.runner.base import Runner

HEURISTIC_START = 5


class Policy(ABC):
    """Gives the draft lengths of one sequence, or what the planner needs to choose them.

    is_planned: whether the planner chooses draft lengths and sizes of passes.
    """

    is_planned = False

    @abstractmethod
    def answer(self, offers: Offers) -> Plan | Estimate:
        """The plan for the next round, or an estimate for the planner."""

    def update(self, stats: RoundStats) -> None:  # noqa: B027
        """Learn from the last round."""


@dataclass(frozen=True)
class ConstantLength(Policy):
    """The same length in every round."""

    length: int

    def answer(self, offers: Offers) -> Plan:
        """The same plan for the first offer."""
        return Plan(self.length, "constant", offers[0])


@dataclass
class HeuristicLength(Policy):
    """Two more after a round in which all draft tokens were accepted, else one fewer, at least 1.

    It grows up to the longest draft of a request. Source: assisted generation in transformers
    (`num_assistant_tokens_schedule="heuristic"`).
    """

    length: int = HEURISTIC_START

    def answer(self, offers: Offers) -> Plan:
        """The same plan for the first offer."""
        return Plan(self.length, "heuristic", offers[0])

    def update(self, stats: RoundStats) -> None:
        """Lengthen or shorten; ignores rounds without draft tokens."""
        if stats.num_accepted < stats.num_drafted:
            self.length = max(self.length - 1, 1)
        elif stats.num_drafted:
            self.length = max(self.length, min(self.length + 2, MAX_REQUESTED_LENGTH))


def best_speed(estimate: Estimate, curve: CostCurve) -> float:
    """Tokens per second with the best draft length, if all rounds are alike.

    Source: Leviathan et al., section 3.5 (arXiv 2211.17192).
    """
    drafts = Ranking.of([estimate], curve)
    passes = curve.main.by_size(MAX_PLANNED_LENGTH + 1, estimate.num_cached)[1:]
    return float(((1.0 + drafts.value[0]) / (passes + drafts.seconds[0])).max())


class PlannedLength(Policy):
    """Leaves the length to the planner, and estimates what a draft of its sequence is worth.

    common: the counts of sequences of this kind; this one adds to them. costs: of passes, by which
    offers are compared.
    """

    is_planned = True

    def __init__(self, common: Counts, costs: Costs) -> None:
        self._acceptance, self._costs = Acceptance(common), costs
        self._is_hopeful, self._throughput = False, 1.0
        self._num_cached, self._num_generated = 0, 0

    def answer(self, offers: Offers) -> Estimate:
        """The estimate of the offer that would be fastest if all rounds were like the next."""
        state = self._num_cached, self._is_hopeful, self._throughput
        rate, left = self._acceptance.rate, max(self._num_generated, EXPECTED)
        estimates = [Estimate(o, rate(o.source, o.confidence), *state, left) for o in offers]
        if len(estimates) == 1:
            return estimates[0]
        curve = self._costs.curve
        return max(estimates, key=lambda each: best_speed(each, curve))

    def update(self, stats: RoundStats) -> None:
        """Count accepted draft tokens."""
        self._num_cached = stats.cached_tokens + stats.pass_tokens
        if stats.reason == "prefill":
            return
        self._num_generated += stats.num_generated
        self._throughput += (stats.num_generated - self._throughput) / HORIZON
        self._is_hopeful = stats.reason == "probe" and stats.num_accepted > 0
        self._acceptance.learn(stats)


class IsolatedLength(Policy):
    """Adapts to this sequence and a nominal cost curve alone."""

    def __init__(self) -> None:
        costs = Costs(NOMINAL)
        self._learned = PlannedLength(Counts(), costs)
        self._planner = Planner(costs)

    def answer(self, offers: Offers) -> Plan:
        """The plan of the sequence as if it ran alone, and the draft model had read it."""
        alone = tuple([replace(offer, num_unread=1) for offer in offers])
        return self._planner.plan([self._learned.answer(alone)], Load()).plans[0]

    def update(self, stats: RoundStats) -> None:
        """Count accepted draft tokens."""
        self._learned.update(stats)


@dataclass(frozen=True)
class LearnedStats:
    """The state of planning across generations.

    costs: cost curves of passes. counts: of earlier sequences by their kind ("greedy", "sampled" or
    "seeded"), since acceptance differs between them.
    """

    costs: Costs = field(default_factory=lambda: Costs(NOMINAL))
    counts: dict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))


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
    drawn = "sampled" if options.seed is None else "seeded"
    return PlannedLength(learned.counts[drawn if options.samples else "greedy"], learned.costs)
