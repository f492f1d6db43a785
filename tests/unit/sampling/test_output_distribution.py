"""Whole outputs, enumerated through the engine, have the main model's own distribution."""

import itertools

import numpy as np
import pytest

from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import CostCurve, Costs, PassCurve
from ov_specdec.planning.policies import ConstantLength, PlannedLength
from ov_specdec.sampling.processors import OccurrencePenalty, RepetitionPenalty
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.sampling.warpers import LogitsWarper
from tests.support.drafting import PROMPT, beside_another, make_drafter, reduced, scripted
from tests.support.enumeration import enumerate_outcomes
from tests.support.fakes import table_model
from tests.support.running import rounds, sequence

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

WARPERS = {
    "as it is": (LogitsWarper(), ()),
    "warped, with a history": (
        LogitsWarper(temperature=1.7, top_p=0.95),
        (RepetitionPenalty(1.3), OccurrencePenalty(0.4, 0.0, len(PROMPT))),
    ),
}


def speculative_output_probs(
    main,
    draft,
    kind,
    policy,
    warper,
    processors,
    *,
    rounds_of=rounds,
    max_new_tokens=100,
    eos=(),
    min_confidence=0.0,
):
    """The probability of each first OUTPUT_LENGTH tokens, over all that chance can do."""

    def run(random):
        sampler = Sampler(processors, frozenset(eos), warper, random)
        length, ends = len(PROMPT) + max_new_tokens, {"sampler": sampler, "eos": sampler.ends}
        drafts = reduced(draft) if "reduced" in kind else draft
        drafter = make_drafter(kind, scripted(drafts), sampler, min_confidence)
        own = policy() if callable(policy) else policy
        text = sequence(scripted(main), PROMPT, length, drafter, own, **ends)
        for _ in rounds_of(text):
            if len(text.tokens) >= len(PROMPT) + OUTPUT_LENGTH:
                break
        return tuple(text.tokens[len(PROMPT) :][:OUTPUT_LENGTH])

    return enumerate_outcomes(run)


def model_output_probs(main, warper, processors, eos=()):
    """The same, straight from the definition: products of conditional probabilities."""
    sampler = Sampler(processors, warper=warper)
    result = {}
    for output in itertools.product(range(len(main([0]))), repeat=OUTPUT_LENGTH):
        probability, kept = 1.0, ()
        for token in output:
            history = [*PROMPT, *kept]
            probability *= sampler.distribution(history, main(history)).prob(token)
            kept += (token,)
            if token in eos:
                break
        if probability > 0:
            result[kept] = probability
    return result


def greatest_difference(a, b):
    return max(abs(a.get(outcome, 0.0) - b.get(outcome, 0.0)) for outcome in a.keys() | b.keys())


@pytest.mark.parametrize("warper", WARPERS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    "kind",
    [
        *("sampled", "greedy", "reduced", "head, reduced", "parallel", "parallel, mask 3"),
        *("prompt lookup", "suffix", "intersection", "retokenize"),
    ],
)
@pytest.mark.parametrize(
    ("rounds_of", "length"),
    [
        (rounds, 3),
        (beside_another, 2),
        *(pytest.param(rounds, length, marks=pytest.mark.deep) for length in (1, 2)),
    ],
)
def test_speculative_sampling_has_the_main_models_distribution(
    rounds_of, length, kind, pair, warper
):
    main, draft = map(table_model, PAIRS[pair])
    actual = speculative_output_probs(
        main, draft, kind, ConstantLength(length), *WARPERS[warper], rounds_of=rounds_of
    )
    expected = model_output_probs(main, *WARPERS[warper])
    assert sum(actual.values()) == pytest.approx(1.0, abs=EXACT)
    assert greatest_difference(actual, expected) < EXACT


@pytest.mark.parametrize("warper", WARPERS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    "ends",
    [{"max_new_tokens": OUTPUT_LENGTH}, {"eos": {0}}, {"eos": {3}, "max_new_tokens": 3}],
    ids=["budget", "end of sequence", "both"],
)
@pytest.mark.parametrize("rounds_of", [rounds, beside_another])
@pytest.mark.parametrize("kind", ["sampled", "parallel"])
def test_the_distribution_is_the_same_where_a_draft_is_cut_by_the_end(
    kind, rounds_of, ends, pair, warper
):
    main, draft = map(table_model, PAIRS[pair])
    actual = speculative_output_probs(
        main, draft, kind, ConstantLength(3), *WARPERS[warper], rounds_of=rounds_of, **ends
    )
    expected = model_output_probs(main, *WARPERS[warper], ends.get("eos", ()))
    assert greatest_difference(actual, expected) < EXACT


@pytest.mark.parametrize(
    "kind",
    ["sampled", "greedy", "parallel", "prompt lookup", "suffix", "intersection", "retokenize"],
)
def test_no_processor_is_asked_what_follows_the_end(kind):
    def watching(tokens, row):
        assert 0 not in tokens[len(PROMPT) :]
        return row

    main, draft = map(table_model, PAIRS["4 tokens"])
    actual = speculative_output_probs(
        main, draft, kind, ConstantLength(3), LogitsWarper(), (watching,), eos={0}
    )
    expected = model_output_probs(main, LogitsWarper(), (), {0})
    assert greatest_difference(actual, expected) < EXACT


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("min_confidence", [0.4, 0.75])
@pytest.mark.parametrize("kind", ["sampled", "parallel"])
def test_the_distribution_is_the_same_where_a_draft_ends_by_its_confidence(
    kind, min_confidence, pair
):
    main, draft = map(table_model, PAIRS[pair])
    given = main, draft, kind, ConstantLength(3), LogitsWarper(), ()
    actual = speculative_output_probs(*given, min_confidence=min_confidence)
    expected = model_output_probs(main, LogitsWarper(), ())
    assert greatest_difference(actual, expected) < EXACT


PLANNED = Costs(CostCurve(PassCurve({1: 1.0, 16: 3.0}), PassCurve({1: 0.02, 16: 0.1})))
"""A token more costs 2/15 of a plain pass: draft tokens that are not likely do not pay."""


@pytest.mark.parametrize("pair", PAIRS)
def test_the_distribution_is_the_same_where_the_planner_cuts_drafts_of_two(pair):
    main, draft = map(table_model, PAIRS[pair])
    num_drafted = set()

    def beside_a_planned_one(text):
        cache, policy = (
            text.cache.runner,
            PlannedLength(text.request.policy._acceptance._common, PLANNED),
        )
        drafter = make_drafter("greedy", text.request.drafters[0].caches[0].runner, Sampler())
        for round_ in rounds(text, sequence(cache, [0, 1], 6, drafter, policy), costs=PLANNED):
            num_drafted.add(round_.stats.num_drafted)
            yield round_

    actual = speculative_output_probs(
        main,
        draft,
        "sampled",
        lambda: PlannedLength(Counts(), PLANNED),
        *WARPERS["as it is"],
        rounds_of=beside_a_planned_one,
    )
    assert greatest_difference(actual, model_output_probs(main, LogitsWarper(), ())) < EXACT
    assert len(num_drafted) >= 3  # none, and drafts that ended at different places
