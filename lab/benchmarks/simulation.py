"""Recorded outputs decoded again on a machine whose passes take what a cost curve says.

There is no clock, so that a run gives the same figures each time. Drafters without a model draft
anew, a draft model as it did.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from operator import itemgetter

from lab.benchmarks.record import Row
from ov_specdec.drafters.base import Drafter, Proposal
from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.drafters.suffix_index import EarlierOutputs, SuffixIndex
from ov_specdec.engine.round import declined
from ov_specdec.planning.costs import CostCurve
from ov_specdec.planning.plan import NO_PLAN, Offer, Offers, Plan
from ov_specdec.planning.planner import Load, Planner, StepPlan
from ov_specdec.planning.policies import Policy
from ov_specdec.results.stats import PassStats, RoundStats
from ov_specdec.runner.cached_sequence import CachedSequence, Passes, alone
from ov_specdec.sampling.verification import Draft
from tests.support.rounds import passes_of

WRONG = -1
"""A token that no text has."""


@dataclass(frozen=True)
class Drafted:
    """What was drafted in a round, and how much of it is right.

    takes_passes: whether it took a pass of a draft model for each token.
    """

    num_drafted: int = 0
    num_accepted: int = 0
    plan: Plan = NO_PLAN
    takes_passes: bool = False
    declined: tuple[str, float, bool] | None = None


@dataclass
class Output:
    """An output, of which drafters draft; no draft goes beyond its end.

    tokens: ids of prompt and output. prompt, size: how many there are of each.
    """

    drafters: tuple[Drafter, ...]
    tokens: list[int]
    prompt: int
    size: int

    def draft(self, done: int, plan: Callable[[Offers], Plan]) -> Drafted:
        """What is drafted in the place of token `done`. plan: answers who drafts."""
        place, room = self.prompt + done, self.size - done - 1
        known = self.tokens[:place]
        offers = [offer for drafter in self.drafters for offer in drafter.offers(known)]
        if not offers:
            return Drafted()
        planned = plan(tuple(offers)).within(room)
        drafter = next(each for each in self.drafters if planned.offer.source in each.sources)
        proposal = alone(drafter.propose(known, planned))
        pairs = zip(proposal.draft.tokens, self.tokens[place:], strict=False)
        return Drafted(
            len(proposal.draft.tokens),
            len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))),
            planned,
            proposal.pass_tokens > 0,
            declined(planned, offers, self.tokens[place]),
        )


class RecordedModel:
    """Drafts as a draft model has: see `record_outputs.drafts_of`. Implements `Drafter`."""

    sources = ("model",)
    caches: tuple[CachedSequence, ...] = ()

    def __init__(self, row: Row) -> None:
        self._text = row["prompt"] + row["output"]
        self._right, self._most = row["right"], row["most"]
        self._first = len(row["prompt"]) + 1

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """See `Drafter`."""
        return [Offer("model")]

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """See `Drafter`."""
        yield from ()
        length = min(plan.length, self._most)
        right = self._text[len(tokens) :][: min(self._right[len(tokens) - self._first], length)]
        return Proposal(Draft(right + [WRONG] * (length - len(right))), pass_tokens=length)


DRAFTERS: dict[str, Callable[[Row, EarlierOutputs], tuple[Drafter, ...]]] = {
    "suffix": lambda row, earlier: (SuffixDrafter(),),
    "suffix with earlier": lambda row, earlier: (SuffixDrafter((), lambda: earlier.indexes(None)),),
    "escaped": lambda row, earlier: (SuffixDrafter(references=SuffixIndex([row["escaped"]])),),
    "model": lambda row, earlier: (RecordedModel(row),),
    "both": lambda row, earlier: (RecordedModel(row), SuffixDrafter()),
}
"""Who drafts a recorded output."""


def output_of(row: Row, drafters: tuple[Drafter, ...]) -> Output:
    """A row of `record-outputs` as a text, which ends where recorded drafts do."""
    has_model = any("model" in drafter.sources for drafter in drafters)
    size = len(row["right"]) + 1 if has_model else len(row["output"])
    return Output(drafters, row["prompt"] + row["output"], len(row["prompt"]), size)


def passing(curve: CostCurve, size: int, last_size: int) -> float:
    """Seconds of a pass of the main model, after one of another size or of the same."""
    changed = size != last_size and size not in curve.main.static
    return curve.main.at(size) + changed * curve.main.change


def rounds_of(
    planner: Planner, policy: Policy, text: Output, curve: CostCurve
) -> Iterator[RoundStats]:
    """The record of each round of a text that has the models to itself, as `Engine` runs it."""
    reading = curve.main.at(text.prompt)
    policy.update(RoundStats(0, 0, 1, 0, reading, 0, reading, text.prompt, reason="prefill"))
    planner.costs.learn("main", [PassStats(text.prompt, 0, text.prompt, reading)])
    done, last_size, is_complete = 1, text.prompt, False
    while done < text.size:
        step_plan: StepPlan | None = None

        def plan(offers: Offers) -> Plan:
            nonlocal step_plan
            answer = policy.answer(offers)
            if isinstance(answer, Plan):
                return answer
            step_plan = planner.plan([answer], Load())
            return step_plan.plans[0]

        drafted = text.draft(done, plan)
        size, offer = drafted.num_drafted + 1, drafted.plan.offer
        if policy.is_planned:
            step_plan = step_plan or planner.plan([], Load())
            size = max(size, step_plan.size)
        drafting = 0.0
        if drafted.takes_passes and drafted.num_drafted:
            step, once, again = curve.drafting
            drafting = drafted.num_drafted * step + once + is_complete * again
        verifying = passing(curve, size, last_size)
        stats = RoundStats(
            num_drafted=drafted.num_drafted,
            num_accepted=drafted.num_accepted,
            num_generated=drafted.num_accepted + 1,
            draft_seconds=drafting,
            verify_seconds=verifying,
            rollback_seconds=0.0,
            seconds=drafting + verifying,
            pass_tokens=size,
            source=offer.source,
            planned=drafted.plan.length,
            reason=drafted.plan.reason or "unmatched",
            match_confidence=offer.confidence,
            cached_tokens=text.prompt + done,
            draft_pass_tokens=drafted.num_drafted * drafted.takes_passes,
            declined=drafted.declined,
        )
        policy.update(stats)
        for role, passes in groupby(passes_of(stats), itemgetter(0)):
            planner.costs.learn(role, [done_pass for _, done_pass in passes])
        last_size, done = size, done + drafted.num_accepted + 1
        is_complete = 0 < drafted.num_drafted == drafted.num_accepted
        yield stats
