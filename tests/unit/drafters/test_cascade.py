"""Prompt lookup first, the draft model where nothing matches."""

from ov_specdec.drafters.base import Cascade
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.planning.draft_length import ConstantLength, Offer, Plan
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.samplers import GreedySampler
from tests.support.fakes import ScriptedModel, counting, held_by, mixing
from tests.support.running import plain, propose, rounds, sequence

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


def test_its_caches_are_those_of_both():
    draft = ModelDrafter(CachedSequence(ScriptedModel(counting)), GREEDY)
    assert Cascade(PromptLookup(), draft).caches == draft.caches
    assert len(draft.caches) == 1


def test_output_is_that_of_plain_decoding_whoever_drafts():
    def next_token(tokens):  # repeats itself in places, so that both drafters have their turns
        return mixing(3)(tokens[-4:]) % 7

    expected = plain(ScriptedModel(next_token), [1, 2, 3], 80)
    drafter, _ = make(next_token)
    text = sequence(ScriptedModel(next_token), [1, 2, 3], 80, drafter, ConstantLength(3))
    sources = set()
    for round_ in rounds(text):
        sources.add(round_.stats.source)
        if text.has_ended:
            break
        known = len(text.tokens) - 1
        cached, drafted = map(held_by, text.caches)
        assert cached[:known] == text.tokens[:-1]
        assert drafted[:known] == text.tokens[: min(known, len(drafted))]
    assert text.tokens == expected.tokens
    assert sources == {"", "prompt-lookup", "model"}
