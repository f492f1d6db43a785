"""Prompt lookup first, the draft model where nothing matches."""

from ov_specdec.drafters.base import Cascade
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.planning.draft_length import Offer, Plan
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.samplers import GreedySampler
from tests.support.fakes import ScriptedModel, counting
from tests.support.running import propose

GREEDY = GreedySampler()


def make(next_token=counting):
    draft = ScriptedModel(next_token)
    return Cascade(PromptLookup(), ModelDrafter(CachedSequence(draft), GREEDY)), draft


def taking(source, length=2):
    """A plan that takes the offer of a source."""
    return lambda ask: Plan(length, "pays", next(offer for offer in ask if offer.source == source))


def test_it_offers_what_both_can_draft():
    drafter, draft = make()
    match, model = drafter.offers([7, 8, 9, 7])
    assert (match, model) == (Offer("prompt-lookup", 1 / 2, 8), Offer("model"))
    assert drafter.offers([7, 8, 9, 7, 5]) == [Offer("model")]
    assert draft.passes == []


def test_the_one_drafts_whose_offer_is_taken():
    drafter, draft = make()
    drafted = propose(drafter, [7, 8, 9, 7], taking("prompt-lookup")).draft
    assert (drafted.tokens, draft.passes) == ([8, 9], [])
    drafted = propose(drafter, [7, 8, 9, 7], taking("model")).draft
    assert (drafted.tokens, len(draft.passes)) == ([8, 9], 2)
    three = Cascade(Cascade(PromptLookup(1), PromptLookup()), drafter)
    assert three.sources == ("prompt-lookup", "prompt-lookup", "prompt-lookup", "model")
    assert propose(three, [7, 8, 9], taking("model")).draft.tokens == [10, 11]
