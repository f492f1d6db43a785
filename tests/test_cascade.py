"""Prompt lookup first, the draft model where nothing matches."""

from ov_specdec.drafters import Cascade, Declined, ModelDrafter, PromptLookup, Proposal
from ov_specdec.planning.draft_length import ConstantLength, Plan
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.samplers import GreedySampler
from ov_specdec.sampling.verification import Draft
from tests.fakes import ScriptedModel, counting, held_by, mixing
from tests.running import plain, propose, rounds, sequence

GREEDY = GreedySampler()


def make(next_token=counting):
    draft = ScriptedModel(next_token)
    return Cascade(PromptLookup(), ModelDrafter(CachedSequence(draft), GREEDY)), draft


def constant(ask):
    return Plan(2, "constant")


def propose_nothing():
    return Proposal(Draft([]))
    yield  # a coroutine, as all are


def test_a_match_comes_first():
    drafter, draft = make()
    proposed = propose(drafter, [7, 8, 9, 7], constant)
    assert (proposed.draft.tokens, proposed.source) == ([8, 9], "prompt-lookup")
    assert draft.passes == []


def test_without_a_match_the_model_drafts():
    drafter, _ = make()
    proposed = propose(drafter, [7, 8, 9], constant)
    assert (proposed.draft.tokens, proposed.source) == ([10, 11], "model")


def test_a_match_that_the_policy_turns_down_leaves_the_round_to_the_model():
    def only_model(ask):
        return Plan(2 if ask.source == "model" else 0, "constant")

    drafter, _ = make()
    proposed = propose(drafter, [7, 8, 9, 7], only_model)
    assert proposed.source == "model"
    assert proposed.declined == Declined("prompt-lookup", 1 / 2, 8)  # the policy learns of it
    assert drafter.sources == ("prompt-lookup", "model")


def test_a_match_that_is_turned_down_between_two_others_is_learnt_of():
    def only_model(ask):
        return Plan(2 if ask.source == "model" else 0, "constant")

    _, draft = make()
    model = ModelDrafter(CachedSequence(draft), GREEDY)
    silent, _ = make()
    silent.propose = lambda tokens: propose_nothing()
    three = Cascade(Cascade(silent, PromptLookup()), model)
    assert propose(three, [7, 8, 9, 7], only_model).declined == Declined("prompt-lookup", 1 / 2, 8)


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
