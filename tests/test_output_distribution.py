"""Whole outputs, enumerated through the engine, have the main model's own distribution."""

import itertools

import numpy as np
import pytest

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.sampling.processors import PresencePenalty, RepetitionPenalty
from ov_specdec.sampling.samplers import GreedySampler, RandomSampler
from ov_specdec.sampling.warpers import LogitsWarper
from ov_specdec.speculation import verification
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.speculation.drafters import ModelDrafter, PromptLookup, SuffixDrafter
from ov_specdec.speculation.engine import SequenceState, Speculation
from ov_specdec.speculation.suffix_index import SuffixIndex
from tests.enumeration import enumerate_outcomes
from tests.fakes import ScriptedModel
from tests.running import plain, scheduled
from tests.toy import table_model

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

WARPERS = {
    "as it is": (LogitsWarper(), ()),
    "warped, with a history": (
        LogitsWarper(temperature=1.7, top_p=0.95),
        (RepetitionPenalty(1.3), PresencePenalty(0.4, len(PROMPT))),
    ),
}


def make_drafter(kind, draft, sampler):
    if kind == "prompt lookup":
        return PromptLookup()
    if kind == "suffix":
        earlier = SuffixIndex()
        earlier.add([1, 0, 1, 0, 2, 2])
        return SuffixDrafter([[0, 1, 0, 3]], lambda: [earlier])
    sampler = sampler if kind == "sampled" else GreedySampler(sampler.processors)
    return ModelDrafter(CachedSequence(draft), sampler)


def beside_another(speculation):
    """The rounds of a sequence in whose passes another one takes part, with drafts of its own."""
    main, caches = speculation.main.runner, speculation.drafter.caches
    greedy, other = GreedySampler(), SequenceState([0, 1], 100)
    drafter = make_drafter("greedy", caches[0].runner, greedy) if caches else PromptLookup()
    beside = Speculation(CachedSequence(main), greedy, other, drafter, ConstantLength(2))
    for round_ in scheduled(speculation, beside):
        assert len(main.sizes[-1]) == 2
        yield round_


def speculative_output_probs(
    main, draft, kind, length, warper, processors, rounds_of=Speculation.rounds
):
    """The probability of each first OUTPUT_LENGTH tokens, over all that chance can do."""

    def run(random):
        sampler = RandomSampler(processors, warper, random)
        text = SequenceState(list(PROMPT), 100)
        drafter = make_drafter(kind, ScriptedModel(draft), sampler)
        cache = CachedSequence(ScriptedModel(main))
        speculation = Speculation(cache, sampler, text, drafter, ConstantLength(length))
        for _ in rounds_of(speculation):
            output = text.tokens[len(PROMPT) :]
            if len(output) >= OUTPUT_LENGTH:
                return tuple(output[:OUTPUT_LENGTH])

    return enumerate_outcomes(run)


def model_output_probs(main, warper, processors):
    """The same, straight from the definition: products of conditional probabilities."""
    sampler = RandomSampler(processors, warper, random=None)
    result = {}
    for output in itertools.product(range(len(main([0]))), repeat=OUTPUT_LENGTH):
        probability = 1.0
        for place, token in enumerate(output):
            history = [*PROMPT, *output[:place]]
            probability *= sampler.distribution(history, main(history)).prob(token)
        if probability > 0:
            result[output] = probability
    return result


def greatest_difference(a, b):
    return max(abs(a.get(outcome, 0.0) - b.get(outcome, 0.0)) for outcome in a.keys() | b.keys())


@pytest.mark.parametrize("warper", WARPERS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("kind", ["sampled", "greedy", "prompt lookup", "suffix"])
@pytest.mark.parametrize(
    ("rounds_of", "length"),
    [*((Speculation.rounds, length) for length in (1, 2, 3)), (beside_another, 2)],
)
def test_speculative_sampling_has_the_main_models_distribution(
    rounds_of, length, kind, pair, warper
):
    main, draft = map(table_model, PAIRS[pair])
    actual = speculative_output_probs(main, draft, kind, length, *WARPERS[warper], rounds_of)
    expected = model_output_probs(main, *WARPERS[warper])
    assert sum(actual.values()) == pytest.approx(1.0, abs=EXACT)
    assert greatest_difference(actual, expected) < EXACT


def test_plain_sampling_has_the_main_models_distribution():
    main = table_model(MAIN_4)

    def run(random):
        text = SequenceState(list(PROMPT), len(PROMPT) + OUTPUT_LENGTH)
        sampler = RandomSampler((), LogitsWarper(), random)
        plain(ScriptedModel(main), text, sampler)
        return tuple(text.tokens[len(PROMPT) :])

    assert (
        greatest_difference(enumerate_outcomes(run), model_output_probs(main, LogitsWarper(), ()))
        < EXACT
    )


@pytest.mark.parametrize(
    "broken",
    [
        lambda main_prob, draft_prob: min(1.0, draft_prob / main_prob) if main_prob else 0.0,
        lambda main_prob, draft_prob: 1.0 if main_prob > 0 else 0.0,
        lambda main_prob, draft_prob: main_prob,
    ],
    ids=["ratio inverted", "any possible token", "draft forgotten"],
)
@pytest.mark.parametrize("rounds_of", [Speculation.rounds, beside_another])
def test_a_broken_acceptance_rule_is_noticed(monkeypatch, broken, rounds_of):
    monkeypatch.setattr(verification, "acceptance_probability", broken)
    main, draft = map(table_model, PAIRS["4 tokens"])
    actual = speculative_output_probs(main, draft, "sampled", 2, LogitsWarper(), (), rounds_of)
    assert greatest_difference(actual, model_output_probs(main, LogitsWarper(), ())) > 1e-3
