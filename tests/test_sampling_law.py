"""The law of whole outputs, enumerated through the engine, equals the main model's own law."""

import itertools

import numpy as np
import pytest

from ov_specdec import verify
from ov_specdec.drafters import ModelDrafter, PromptLookup
from ov_specdec.engine import Text, decode, speculate
from ov_specdec.policy import ConstantLength
from ov_specdec.processors import PresencePenalty, RepetitionPenalty
from ov_specdec.rules import GreedyRule, SamplingRule
from ov_specdec.warp import Warp
from tests.enumeration import law
from tests.toy import ToySession, table_model

OUTPUT_LENGTH = 3
EXACT = 1e-9

# Rows: the last token; columns: weights of the next one. Few tokens can follow each, so that all
# ways that a generation can go can be enumerated; some only the draft believes in, some only the
# main model.
MAIN_4 = np.array([[0, 3, 2, 0], [5, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 2]])
DRAFT_4 = np.array([[0, 1, 2, 0], [1, 0, 0, 4], [0, 2, 1, 0], [1, 0, 3, 0]])
MAIN_8 = np.zeros((8, 8))
DRAFT_8 = np.zeros((8, 8))
for token in range(8):
    MAIN_8[token, [(token + 1) % 8, (token * 3) % 8]] += [3, 1]
    DRAFT_8[token, [(token + 1) % 8, (token * 5 + 2) % 8]] += [1, 2]
PAIRS = {"4 tokens": (MAIN_4, DRAFT_4), "8 tokens": (MAIN_8, DRAFT_8)}
PROMPT = [1, 0, 1]

WARPS = {
    "as it is": (Warp(), ()),
    "warped, with a history": (
        Warp(temperature=1.7, top_p=0.95),
        (RepetitionPenalty(1.3), PresencePenalty(0.4, len(PROMPT))),
    ),
}


def make_drafter(kind, draft, rule):
    if kind == "prompt lookup":
        return PromptLookup()
    greedy = GreedyRule(rule.processors)
    return ModelDrafter(ToySession(draft), rule if kind == "sampled" else greedy)


def law_of_speculation(main, draft, kind, length, warp, processors):
    """The probability of each first OUTPUT_LENGTH tokens, over all that chance can do."""

    def run(dice):
        rule = SamplingRule(processors, warp, dice)
        text = Text(list(PROMPT), 100)
        drafter = make_drafter(kind, draft, rule)
        for _ in speculate(ToySession(main), drafter, ConstantLength(length), rule, text):
            output = text.tokens[len(PROMPT) :]
            if len(output) >= OUTPUT_LENGTH:
                return tuple(output[:OUTPUT_LENGTH])

    return law(run)


def law_of_the_model(main, warp, processors):
    """The same, straight from the definition: products of conditional probabilities."""
    rule = SamplingRule(processors, warp, dice=None)
    result = {}
    for output in itertools.product(range(len(main([0]))), repeat=OUTPUT_LENGTH):
        probability = 1.0
        for place, token in enumerate(output):
            history = [*PROMPT, *output[:place]]
            probability *= rule.distribution(history, main(history)).prob(token)
        if probability > 0:
            result[output] = probability
    return result


def greatest_difference(a, b):
    return max(abs(a.get(outcome, 0.0) - b.get(outcome, 0.0)) for outcome in a.keys() | b.keys())


@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("kind", ["sampled", "greedy", "prompt lookup"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_speculative_sampling_has_the_main_models_law(length, kind, pair, warp):
    main, draft = map(table_model, PAIRS[pair])
    actual = law_of_speculation(main, draft, kind, length, *WARPS[warp])
    expected = law_of_the_model(main, *WARPS[warp])
    assert sum(actual.values()) == pytest.approx(1.0, abs=EXACT)
    assert greatest_difference(actual, expected) < EXACT


def test_plain_sampling_has_the_main_models_law():
    main = table_model(MAIN_4)

    def run(dice):
        text = Text(list(PROMPT), len(PROMPT) + OUTPUT_LENGTH)
        list(decode(ToySession(main), SamplingRule((), Warp(), dice), text))
        return tuple(text.tokens[len(PROMPT) :])

    assert greatest_difference(law(run), law_of_the_model(main, Warp(), ())) < EXACT


@pytest.mark.parametrize(
    "broken",
    [
        lambda main_prob, draft_prob: min(1.0, draft_prob / main_prob) if main_prob else 0.0,
        lambda main_prob, draft_prob: 1.0 if main_prob > 0 else 0.0,
        lambda main_prob, draft_prob: main_prob,
    ],
    ids=["ratio inverted", "any possible token", "draft forgotten"],
)
def test_a_broken_acceptance_rule_is_noticed(monkeypatch, broken):
    monkeypatch.setattr(verify, "acceptance", broken)
    main, draft = map(table_model, PAIRS["4 tokens"])
    actual = law_of_speculation(main, draft, "sampled", 2, Warp(), ())
    assert greatest_difference(actual, law_of_the_model(main, Warp(), ())) > 1e-3
