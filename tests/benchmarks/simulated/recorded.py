"""Recorded outputs as texts: drafters without a model draft them anew, a draft model as it did."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from random import Random

from ov_specdec.drafters import Drafter, PromptLookup, Proposal, SuffixDrafter
from ov_specdec.drafters.base import Steps
from ov_specdec.drafters.earlier_outputs import EarlierOutputs
from ov_specdec.planning.draft_length import Plan, PlanRequest, ask
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.verification import Draft
from tests.benchmarks.record import Row
from tests.benchmarks.simulated.machine import Drafted
from tests.running import propose

WRONG = -1
"""A token that no text has."""


@dataclass
class Output:
    """An output, of which a drafter drafts. Implements `Text`; no draft goes beyond its end.

    tokens: ids of prompt and output. prompt, size: how many there are of each.
    """

    drafter: Drafter
    tokens: list[int]
    prompt: int
    size: int

    def draft(self, done: int, plan: Callable[[PlanRequest], Plan], _: Random) -> Drafted:
        """See `Text`."""
        place, room = self.prompt + done, self.size - done - 1

        def planned(ask: PlanRequest) -> Plan:
            return plan(ask).within(room)

        proposal = propose(self.drafter, self.tokens[:place], planned)
        pairs = zip(proposal.draft.tokens, self.tokens[place:], strict=False)
        declined = proposal.declined
        return Drafted(
            len(proposal.draft.tokens),
            len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))),
            *(proposal.plan, proposal.source, proposal.pass_tokens > 0),
            *(proposal.confidences, proposal.match_confidence),
            declined.outcome(self.tokens[place]) if declined else None,
        )


class Foresight:
    """Drafts what stands behind the sequence's last token, where it agrees with the output longest.

    No rule that chooses among matches can have more. Implements `Drafter`.
    """

    sources = PromptLookup.sources
    caches: tuple[CachedSequence, ...] = ()

    def __init__(self, text: list[int]) -> None:
        self._text = text

    def propose(self, tokens: list[int]) -> Steps[Proposal]:
        """See `Drafter`."""
        plan = yield from ask(self.sources[0], 1.0)
        text, place = self._text, len(tokens)
        places = (p for p in range(1, place) if text[p - 1] == text[place - 1])
        agreeing = (
            next((n for n in range(plan.length) if text[p + n] != text[place + n]), plan.length)
            for p in places
        )
        draft = text[place : place + max(agreeing, default=0)]
        return Proposal(Draft(draft), self.sources[0], plan, match_confidence=1.0)


class RecordedModel:
    """Drafts as a draft model has. places: see `record_outputs.drafts_of`. Implements `Drafter`."""

    sources = ("model",)
    caches: tuple[CachedSequence, ...] = ()

    def __init__(self, row: Row) -> None:
        self._text, self._places = row["prompt"] + row["output"], row["drafts"]
        self._first = len(row["prompt"]) + 1

    def propose(self, tokens: list[int]) -> Steps[Proposal]:
        """See `Drafter`."""
        plan = yield from ask("model")
        agree, confidences = self._places[len(tokens) - self._first]
        most = min(plan.length, len(confidences))
        ends = (n for n in range(1, most) if plan.ends_after(confidences[:n]))
        length = next(ends, most)
        right = self._text[len(tokens) :][: min(agree, length)]
        return Proposal(
            Draft(right + [WRONG] * (length - len(right))),
            *("model", plan),
            confidences=tuple(confidences[:length]) if plan.wants_confidence else (),
            pass_tokens=length,
        )


DRAFTERS: dict[str, Callable[[Row, EarlierOutputs], Drafter]] = {
    "prompt-lookup": lambda row, earlier: PromptLookup(),
    "suffix": lambda row, earlier: SuffixDrafter(),
    "suffix with earlier": lambda row, earlier: SuffixDrafter((), lambda: earlier.indexes(None)),
    "best match": lambda row, earlier: Foresight(row["prompt"] + row["output"]),
    "model": lambda row, earlier: RecordedModel(row),
}
"""Who drafts a recorded output."""


def output_of(row: Row, drafter: Drafter) -> Output:
    """A row of `record-outputs` as a text, which ends where recorded drafts do."""
    tokens, prompt = row["prompt"] + row["output"], len(row["prompt"])
    size = len(row["drafts"]) + 1 if isinstance(drafter, RecordedModel) else len(row["output"])
    return Output(drafter, tokens, prompt, size)
