"""Recorded outputs as texts: drafters without a model draft them anew, a draft model as it did."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from random import Random

from ov_specdec.drafters.base import Drafter, Proposal
from ov_specdec.drafters.earlier_outputs import EarlierOutputs
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.drafters.suffix_index import SuffixIndex
from ov_specdec.engine.round import declined
from ov_specdec.planning.draft_length import Offer, Offers, Plan
from ov_specdec.runner.cached_sequence import CachedSequence, Passes, alone
from ov_specdec.sampling.verification import Draft
from tests.benchmarks.record import Row
from tests.benchmarks.simulated.machine import Drafted

WRONG = -1
"""A token that no text has."""


@dataclass
class Output:
    """An output, of which drafters draft. Implements `Text`; no draft goes beyond its end.

    tokens: ids of prompt and output. prompt, size: how many there are of each.
    """

    drafters: tuple[Drafter, ...]
    tokens: list[int]
    prompt: int
    size: int

    def draft(self, done: int, plan: Callable[[Offers], Plan], _: Random) -> Drafted:
        """See `Text`."""
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
            *(planned, planned.offer.source, proposal.pass_tokens > 0),
            *(proposal.confidences, planned.offer.confidence),
            declined(planned, offers, self.tokens[place]),
        )


class Foresight:
    """Drafts what stands behind the sequence's last token, where it agrees with the output longest.

    No rule that chooses among matches can have more. Implements `Drafter`.
    """

    sources = PromptLookup.sources
    caches: tuple[CachedSequence, ...] = ()

    def __init__(self, text: list[int]) -> None:
        self._text = text

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """See `Drafter`."""
        return [Offer(self.sources[0], 1.0)]

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """See `Drafter`."""
        yield from ()
        text, place = self._text, len(tokens)
        places = (p for p in range(1, place) if text[p - 1] == text[place - 1])
        agreeing = (
            next((n for n in range(plan.length) if text[p + n] != text[place + n]), plan.length)
            for p in places
        )
        draft = text[place : place + max(agreeing, default=0)]
        return Proposal(Draft(draft))


class RecordedModel:
    """Drafts as a draft model has. places: see `record_outputs.drafts_of`. Implements `Drafter`."""

    sources = ("model",)
    caches: tuple[CachedSequence, ...] = ()

    def __init__(self, row: Row) -> None:
        self._text, self._places = row["prompt"] + row["output"], row["drafts"]
        self._first = len(row["prompt"]) + 1

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """See `Drafter`."""
        return [Offer("model")]

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """See `Drafter`."""
        yield from ()
        agree, confidences = self._places[len(tokens) - self._first]
        length = min(plan.length, len(confidences))
        right = self._text[len(tokens) :][: min(agree, length)]
        draft = Draft(right + [WRONG] * (length - len(right)))
        return Proposal(draft, pass_tokens=length)


DRAFTERS: dict[str, Callable[[Row, EarlierOutputs], tuple[Drafter, ...]]] = {
    "prompt-lookup": lambda row, earlier: (PromptLookup(),),
    "suffix": lambda row, earlier: (SuffixDrafter(),),
    "suffix with earlier": lambda row, earlier: (SuffixDrafter((), lambda: earlier.indexes(None)),),
    "escaped": lambda row, earlier: (SuffixDrafter(references=SuffixIndex([row["escaped"]])),),
    "best match": lambda row, earlier: (Foresight(row["prompt"] + row["output"]),),
    "model": lambda row, earlier: (RecordedModel(row),),
    "both": lambda row, earlier: (SuffixDrafter(), RecordedModel(row)),
}
"""Who drafts a recorded output."""


def output_of(row: Row, drafters: tuple[Drafter, ...]) -> Output:
    """A row of `record-outputs` as a text, which ends where recorded drafts do."""
    tokens, prompt = row["prompt"] + row["output"], len(row["prompt"])
    has_model = any("model" in drafter.sources for drafter in drafters)
    size = len(row["drafts"]) + 1 if has_model else len(row["output"])
    return Output(drafters, tokens, prompt, size)
