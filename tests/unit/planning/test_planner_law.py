"""Sampling has the main model's distribution where the planner cuts drafts of several sequences."""

from collections import Counter

import pytest

from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import CostCurve, Costs, PassCurve
from ov_specdec.planning.draft_length import AdaptiveLength
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.samplers import GreedySampler, RandomSampler
from ov_specdec.sampling.verification import Draft
from ov_specdec.sampling.warpers import LogitsWarper
from tests.support.enumeration import enumerate_outcomes
from tests.support.running import rounds, sequence
from tests.support.toy import table_model
from tests.unit.sampling.test_output_distribution import (
    EXACT,
    OUTPUT_LENGTH,
    PAIRS,
    PROMPT,
    greatest_difference,
    model_output_probs,
    scripted,
)

CURVE = CostCurve(PassCurve({1: 1.0, 16: 4.0}), PassCurve({1: 0.02, 16: 0.1}))
"""A token more costs a fifth of a plain pass: draft tokens that are not likely do not pay."""


class ForgetfulDrafter(ModelDrafter):
    """A broken one: leaves out the last draft token that was drawn, for its own probability."""

    def propose(self, tokens, plan):
        proposal = yield from super().propose(tokens, plan)
        drawn, probs = proposal.draft.tokens, proposal.draft.probs
        if not probs or probs[-1].prob(drawn[-1]) > 0.5:
            return proposal
        return proposal._replace(draft=Draft(drawn[:-1], probs[:-1] or None))


def output_probs(pair, drafter, lengths):
    """The probability of each first OUTPUT_LENGTH tokens, beside a sequence that drafts too."""
    main, draft = map(table_model, PAIRS[pair])

    def run(random):
        common = Counts()
        models = scripted(main), scripted(draft)

        def planned(tokens, sampler, kind):
            return sequence(
                models[0],
                tokens,
                len(tokens) + OUTPUT_LENGTH + 1,
                kind(CachedSequence(models[1]), sampler),
                AdaptiveLength(common, Costs(CURVE)),
                sampler=sampler,
            )

        text = planned(list(PROMPT), RandomSampler((), LogitsWarper(), random), drafter)
        other = planned([0, 1], GreedySampler(), ModelDrafter)
        for round_ in rounds(text, other, costs=Costs(CURVE)):
            lengths[round_.stats.num_drafted] += 1
            if len(text.tokens) >= len(PROMPT) + OUTPUT_LENGTH:
                break
        return tuple(text.tokens[len(PROMPT) :][:OUTPUT_LENGTH])

    return enumerate_outcomes(run)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_budget_that_cuts_drafts_keeps_the_main_models_distribution(pair):
    lengths = Counter()
    actual = output_probs(pair, ModelDrafter, lengths)
    expected = model_output_probs(table_model(PAIRS[pair][0]), LogitsWarper(), ())
    assert greatest_difference(actual, expected) < EXACT
    assert len(lengths) >= 3  # none, and drafts that ended at different places


def test_a_cut_that_looks_at_what_was_drawn_is_noticed():
    actual = output_probs("4 tokens", ForgetfulDrafter, Counter())
    expected = model_output_probs(table_model(PAIRS["4 tokens"][0]), LogitsWarper(), ())
    assert greatest_difference(actual, expected) > 0.01
