"""Drafts that take one pass of the draft model: what they cost, and what is learnt of them."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import CostCurve, Costs, PassCurve
from ov_specdec.planning.kept_costs import PARALLEL_SIZES, KeptCosts
from ov_specdec.planning.plan import Estimate, Offer
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.planning.policies import PlannedLength
from ov_specdec.planning.ranking import Ranking
from tests.support.fakes import MASK, ScriptedModel, counting, in_parallel
from tests.support.rounds import a_round

OFFER = Offer("model", takes_one_pass=True)
MAIN = PassCurve({1: 1.0, 101: 21.0})
# Flat up to 8 tokens, as passes are that wait for weights.
DRAFT = PassCurve({1: 0.2, 8: 0.25, 16: 0.5, 101: 5.0}, per_read=2e-5, resumed=0.03)
CURVE = CostCurve(MAIN, DRAFT)
NUM_CACHED = 300


def drafted(chance):
    return Estimate(OFFER, chance, NUM_CACHED)


def drafting(chances, lengths):
    """Seconds of a pass that drafts so many tokens of each sequence, where all rounds are alike.

    It feeds what the round before has added, and mask tokens for all draft tokens but the last.
    """
    pairs = [pair for pair in zip(chances, lengths, strict=True) if pair[1]]
    fed = sum(sum(chance**n for n in range(length + 1)) + length - 1 for chance, length in pairs)
    seconds = np.interp(fed, list(DRAFT.seconds), list(DRAFT.seconds.values()))
    return seconds + DRAFT.per_read * NUM_CACHED * fed + DRAFT.resumed if pairs else 0.0


@pytest.mark.parametrize("chances", [(0.9,), (0.5,), (0.8, 0.8), (0.95, 0.3), (0.9, 0.8, 0.4)])
def test_no_lengths_yield_more(chances):
    def rate(lengths):
        pairs = list(zip(chances, lengths, strict=True))
        tokens = sum(chance**n for chance, length in pairs for n in range(length + 1))
        return tokens / (MAIN.at(len(chances) + sum(lengths)) + drafting(chances, lengths))

    most = {1: 15, 2: 15, 3: 8}[len(chances)]
    best = max(map(rate, product(range(most + 1), repeat=len(chances))))
    load = Load(len(chances), len(chances), len(chances))
    plans = Planner(Costs(CURVE)).plan(list(map(drafted, chances)), load).plans
    assert rate([plan.length for plan in plans]) == pytest.approx(best, rel=0.005)
    assert any(plan.length > 1 for plan in plans)


def test_the_pass_of_all_is_counted_once():
    match = replace(drafted(0.8), offer=Offer("suffix", 0.5, 1))
    ranking = Ranking.of([drafted(0.9), drafted(0.7), match], CURVE)
    for choice in range(ranking.seconds.size):
        expected = drafting((0.9, 0.7), ranking.lengths(choice, 3)[:2])
        assert ranking.seconds.ravel()[choice] == pytest.approx(expected)


def test_a_match_is_taken_where_the_pass_costs_more_than_it_gains():
    offers = (Offer("suffix", 0.8, 1), OFFER)

    def taken(short, long):
        curve = CostCurve(PassCurve({1: 1.0, 16: 1.1}), PassCurve({1: short, 16: long}))
        policy = PlannedLength(Counts(), Costs(curve))
        for _ in range(20):
            policy.update(a_round(6, 6))
        return policy.answer(offers).offer.source

    assert taken(0.01, 0.02) == "model"
    assert taken(3.0, 3.5) == "suffix"
    assert taken(0.01, 9.0) == "suffix"  # unlike a draft model that takes a pass for each


def test_what_a_draft_token_reads_is_the_text_so_far():
    policy = PlannedLength(Counts(), Costs(CURVE))
    policy.update(a_round(size=1500, reason="prefill"))
    assert policy.answer((OFFER,)).num_cached == 1500
    policy.update(a_round(4, 2, cached_tokens=1500))
    assert policy.answer((OFFER,)).num_cached == 1505


def test_passes_of_the_sizes_that_it_has_are_measured():
    draft = ScriptedModel(in_parallel(counting))
    draft.mask_token = MASK
    list(KeptCosts(ScriptedModel(counting), draft, None).passes())
    assert set(draft.passes[1:]) == {*PARALLEL_SIZES}
