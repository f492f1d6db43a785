"""One verification budget for many sequences."""

import numpy as np
import pytest

from ov_specdec.planning.budget import Budget, Load
from ov_specdec.planning.costs import CostCurve, FixedCurve, PassCurve
from ov_specdec.planning.draft_length import Bid
from tests.benchmarks.simulated.sequences import compare

# A token more costs a fifth of a plain pass; a pass of the draft model a tenth, and half of that
# for each sequence more.
COSTS = FixedCurve(
    CostCurve(PassCurve({16: {1: 1.0, 101: 21.0}}), PassCurve({16: {1: 0.1, 17: 0.9}}))
)


def answering(number, num_tokens=None, num_prefill=0, num_cached=16):
    """The load of a step that answers so many sequences."""
    return Load(number, number, num_tokens or number, num_prefill, num_cached)


def bid(chance, *, takes_passes=True, **more):
    return Bid(chance ** np.arange(16), takes_passes, **more)


def lengths(bids, costs=COSTS, **load):
    load = answering(len(bids), **load)
    return [plan.length for plan in Budget(costs).share(bids, load)]


def best_by_trying(bids):
    """The greatest tokens per second of two sequences, over all pairs of lengths."""
    rates = {}
    for a in range(16):
        for b in range(16):
            tokens = sum(bids[0].alive[: a + 1]) + sum(bids[1].alive[: b + 1])
            drafting = 0.15 * min(a, b) + 0.1 * (max(a, b) - min(a, b))
            drafting += 0.05 * ((a > 0) + (b > 0))  # two tokens in the first passes
            rates[a, b] = tokens / (1.0 + 0.2 * (1 + a + b) + drafting)
    return max(rates, key=rates.__getitem__), rates


@pytest.mark.parametrize("pair", [(0.9, 0.9), (0.95, 0.3), (0.7, 0.8), (0.0, 0.0), (1.0, 0.1)])
def test_no_pair_of_lengths_yields_more(pair):
    bids = [bid(chance) for chance in pair]
    best, rates = best_by_trying(bids)
    assert rates[tuple(lengths(bids))] == pytest.approx(rates[best], rel=0.003)


def test_texts_that_are_easy_to_guess_get_more_draft_tokens():
    easy, hard, useless = lengths([bid(0.95), bid(0.8), bid(0.0)])
    assert easy > hard > useless == 0


def test_more_sequences_get_fewer_draft_tokens_each():
    numbers = [lengths([bid(0.8)] * n)[0] for n in (1, 4, 16)]
    assert numbers[0] > numbers[1] >= numbers[2]


def test_what_the_pass_holds_already_is_part_of_its_price():
    flat_then_steep = FixedCurve(CostCurve(PassCurve({16: {1: 1.0, 16: 1.0, 17: 3.0, 32: 40.0}})))
    bids = [bid(0.9, takes_passes=False)] * 2
    assert sum(lengths(bids, flat_then_steep)) == 14
    assert sum(lengths(bids, flat_then_steep, num_tokens=10)) == 6


def test_matches_cost_no_passes_of_the_draft_model():
    match, model = lengths([bid(0.7, takes_passes=False), bid(0.65)])
    assert match > model


def test_drafts_go_on_up_to_where_passes_become_expensive_and_no_further():
    flat_then_steep = FixedCurve(CostCurve(PassCurve({16: {1: 1.0, 16: 1.0, 17: 3.0, 32: 40.0}})))
    bids = [bid(0.9, takes_passes=False)] * 2
    assert lengths(bids, flat_then_steep) == [7, 7]


def test_no_draft_is_so_long_that_its_passes_hold_too_few_sequences():
    """A pass of the draft model costs the same for one sequence as for all."""
    costs = FixedCurve(
        CostCurve(PassCurve({16: {1: 1.0, 101: 2.0}}), PassCurve({16: {1: 0.5, 17: 0.5}}))
    )
    assert lengths([bid(0.9)] * 8, costs) == [3] * 8
    alone, *others = lengths([bid(0.99), *[bid(0.6)] * 7], costs)
    assert alone == max(others) < 5


def test_a_prompt_beside_changes_nothing_where_each_token_costs_the_same():
    """It takes its own time, whatever is drafted; the ratio of the whole step would draft on."""
    bids = [bid(0.9), bid(0.8)]
    assert lengths(bids, num_prefill=80) == lengths(bids) != [0, 0]


def test_more_is_drafted_where_a_prompt_has_made_the_pass_one_whose_tokens_are_cheap():
    steep_then_flat = FixedCurve(CostCurve(PassCurve({16: {1: 1.0, 32: 32.0, 96: 35.0}})))
    bids = [bid(0.8, takes_passes=False)] * 2
    assert lengths(bids, steep_then_flat) == [0, 0]
    assert min(lengths(bids, steep_then_flat, num_prefill=30)) > 5


@pytest.mark.parametrize(
    ("number", "load"), [(2, {"num_tokens": 300}), (90, {}), (33, {"num_prefill": 512})]
)
def test_steps_of_any_size_are_planned(number, load):
    budget, load = Budget(COSTS), answering(number, **load)
    assert len(budget.share([bid(0.9)] * number, load)) == number
    assert budget.pass_size(load.num_tokens, load) >= load.num_tokens


def test_prompts_bring_no_token():
    """Of eight sequences one is answered: drafting for it is no small part of what is gained."""
    alone, beside = Load(1, 1, 1, 0, 16), Load(8, 1, 1, 40, 16)
    plans = [Budget(COSTS).share([bid(0.9)], load)[0] for load in (alone, beside)]
    assert plans[0].length == plans[1].length > 0


def test_what_does_not_pay_is_probed_once_in_a_step_where_it_is_likeliest_to_succeed():
    bids = [bid(chance, may_probe=True) for chance in (0.01, 0.05, 0.02)]
    plans = Budget(COSTS).share(bids, answering(3))
    assert [(plan.length, plan.reason) for plan in plans] == [
        (0, "loses"),
        (1, "probe"),
        (0, "loses"),
    ]


def test_plans_are_kept_while_everybody_bids_about_the_same():
    budget, bids = Budget(COSTS), [bid(0.9), bid(0.5)]
    plans = budget.share(bids, answering(2))
    assert budget.share([bid(0.91), bid(0.5)], answering(2, num_cached=24)) is plans
    assert budget.share([bid(0.5), bid(0.5)], answering(2, num_cached=24)) is not plans
    assert budget.share(bids, answering(2, num_prefill=7)) is not plans
    budget.share(bids, answering(2))
    choosy = [bid(0.9, min_confidence=0.4), bids[1]]
    assert budget.share(choosy, answering(2))[0].min_confidence == 0.4
    kept = budget.share(bids, answering(2, num_prefill=7))
    assert budget.share(bids, answering(9)) is not kept
    others = [bids[0], bid(0.95)]
    assert [plan.length for plan in budget.share(others, answering(2))] == lengths(others)
    probing = [bid(0.01, may_probe=True)] * 2
    assert budget.share(probing, answering(2)) is not budget.share(probing, answering(2))


def test_expectations_are_those_of_the_bid():
    [plan] = Budget(COSTS).share([bid(0.9)], answering(1))
    assert plan.expected[:2] == pytest.approx((0.9, 0.81))


@pytest.mark.parametrize(
    ("curve", "mixture", "concurrency", "least"),
    [
        ("flat", "0.8", 4, 0.97),
        ("flat", "0, 0.95", 8, 1.1),
        ("linear", "0.95", 4, 0.97),
        ("linear", "0, 0.95", 2, 1.1),
        ("linear", "0.5", 16, 0.97),
        ("avx2", "0.0", 8, 0.97),
        ("avx2", "0.8", 2, 0.97),
        ("avx2", "all", 32, 0.97),
    ],
)
def test_it_comes_near_the_best_constant_length_or_beats_it(curve, mixture, concurrency, least):
    found = compare(curve, mixture, concurrency, seeds=3)
    assert found["to best"] >= least
    assert found["to plain"] >= 0.97


def test_passes_are_padded_to_fixed_sizes_beside_the_usual_ones():
    main = PassCurve({16: {1: 1.0, 101: 2.0}}, change=0.5, static=frozenset({21}))
    assert Budget(FixedCurve(CostCurve(main))).pass_size(18, answering(9)) == 21
