"""Prompt lookup first, the draft model where nothing matches."""

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.sampling.samplers import GreedySampler
from ov_specdec.speculation.draft_length import ConstantLength, Plan
from ov_specdec.speculation.drafters import Cascade, ModelDrafter, PromptLookup
from ov_specdec.speculation.engine import SequenceState, decode, speculate
from tests.fakes import ScriptedSession, counting, mixing

GREEDY = GreedySampler()


def make(next_token=counting):
    draft = ScriptedSession(next_token)
    return Cascade(PromptLookup(), ModelDrafter(CachedSequence(draft), GREEDY)), draft


def constant(source, confidence=None):
    return Plan(2, "constant")


def test_a_match_comes_first():
    drafter, draft = make()
    proposed = drafter.propose([7, 8, 9, 7], constant)
    assert (proposed.draft.tokens, proposed.source) == ([8, 9], "prompt-lookup")
    assert draft.passes == []


def test_without_a_match_the_model_drafts():
    drafter, _ = make()
    proposed = drafter.propose([7, 8, 9], constant)
    assert (proposed.draft.tokens, proposed.source) == ([10, 11], "model")


def test_a_match_that_the_policy_turns_down_leaves_the_round_to_the_model():
    def only_model(source, confidence=None):
        return Plan(2 if source == "model" else 0, "constant")

    drafter, _ = make()
    assert drafter.propose([7, 8, 9, 7], only_model).source == "model"
    assert drafter.sources == ("prompt-lookup", "model")


def test_output_is_that_of_plain_decoding_whoever_drafts():
    def next_token(tokens):  # repeats itself in places, so that both drafters have their turns
        return mixing(3)(tokens[-4:]) % 7

    plain = SequenceState([1, 2, 3], 80)
    list(decode(CachedSequence(ScriptedSession(next_token)), GREEDY, plain))
    main, text = ScriptedSession(next_token), SequenceState([1, 2, 3], 80)
    drafter, draft = make(next_token)
    sources = set()
    for round_ in speculate(CachedSequence(main), drafter, ConstantLength(3), GREEDY, text):
        sources.add(round_.stats.source)
        known = len(text.tokens) - 1
        assert main.cache[:known] == text.tokens[:-1]
        assert draft.cache[:known] == text.tokens[: min(known, draft.length)]
    assert text.tokens == plain.tokens
    assert sources == {"", "prompt-lookup", "model"}
