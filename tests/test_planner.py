"""The planner: of one sequence on simulated machines and texts, and of many that share passes."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from ov_specdec.planning.acceptance import SharedCounts
from ov_specdec.planning.costs import NOMINAL, CostCurve, FixedCurve, LiveCurve, PassCurve
from ov_specdec.planning.draft_length import AdaptiveLength, Bid, PlanRequest
from ov_specdec.planning.planner import OUTBID, Load, Planner
from ov_specdec.planning.schedule import IsolatedLength
from ov_specdec.stats import PassStats, StepStats
from tests.benchmarks.simulated import sequences, texts
from tests.benchmarks.simulated.machine import Machine, rounds_of
from tests.benchmarks.simulated.texts import TEXTS, MadeUp, machine_of, measured, steady
from tests.rounds import a_round, step_of

CASES = [
    ("flat", 0.0, "0.8"),
    ("flat", 0.3, "0.95"),
    ("flat", 1.0, "0, 0.9"),
    ("linear", 0.0, "0.6"),
    ("linear", 0.3, "~0.8"),
    ("linear", 1.0, "0.4"),
    ("stepped", 0.0, "1.0"),
    ("stepped", 0.3, "0.9, 0"),
    ("stepped", 1.0, "both"),
    ("avx2", 0.0, "0.6"),
    ("avx2", 0.3, "lookup"),
    ("avx2", 1.0, "~0.6"),
]
"""Machines with jumps of pace and outliers; `tests/benchmarks/simulated` has them all."""


@pytest.mark.parametrize(("curve", "change", "text"), CASES)
def test_it_comes_near_the_best_constant_length(curve, change, text):
    assert texts.compare(curve, change, text)["to best"] >= 0.97


WORST = {
    ("linear", 1.0, "0.95"): 0.94,
    ("stepped", 1.0, "0.95"): 0.94,
    ("linear", 0.3, "0.95"): 0.955,
    ("flat", 1.0, "0.95"): 0.955,
}
"""Where texts are short for learning that long drafts pay: less than 0.97 of the best."""


@pytest.mark.parametrize(("case", "least"), WORST.items())
def test_the_worst_machines_and_texts_keep_what_they_reach(case, least):
    assert texts.compare(*case)["to best"] >= least


@pytest.mark.parametrize(
    ("curve", "change", "text"),
    [
        ("flat", 1.0, "0.0"),
        ("linear", 0.0, "0.0"),
        ("linear", 1.0, "0.2"),
        ("avx2", 0.3, "0.2"),
        ("avx2", 1.0, "0.0"),
        ("avx2", 1.0, "poor"),
    ],
)
def test_where_nothing_pays_it_is_hardly_slower_than_plain_decoding(curve, change, text):
    assert texts.compare(curve, change, text)["to plain"] >= 0.985


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
def test_many_sequences_come_near_the_best_constant_length_or_beat_it(
    curve, mixture, concurrency, least
):
    found = sequences.compare(curve, mixture, concurrency, seeds=3)
    assert found["to best"] >= least
    assert found["to plain"] >= 0.97


def run(text, seed=0, curve="linear", change=0.3, common=None, planner=None, policy=None):
    """One text on a machine that nothing disturbs."""
    machine = Machine(machine_of(curve, change).curve)
    generator = Random(seed)
    planner = planner or Planner(measured(machine, generator))
    policy = policy or AdaptiveLength(text.sources, common or SharedCounts())
    return [stats for stats, _ in rounds_of(planner, policy, text, machine, generator)]


def a_planner(curve="linear", change=0.3):
    return Planner(measured(machine_of(curve, change), Random(0)))


def test_probes_of_a_useless_draft_take_one_hundredth_of_the_time():
    common, planner = SharedCounts(), a_planner()
    for _ in range(4):
        run(TEXTS["0.0"], common=common, planner=planner)
    rounds = [
        stats for _ in range(8) for stats in run(TEXTS["0.0"], common=common, planner=planner)
    ]
    reasons = {stats.reason for stats in rounds}
    assert reasons == {"loses", "probe"}
    assert sum(stats.seconds for stats in rounds) <= 1.015 * len(rounds)


def test_a_probe_that_succeeds_is_followed_by_drafts():
    common, planner = SharedCounts(), a_planner()
    for _ in range(4):
        useless = run(TEXTS["0.0"], common=common, planner=planner)
    assert useless[-1].reason == "loses"
    outputs = [run(TEXTS["1.0"], common=common, planner=planner) for _ in range(4)]
    reasons = [stats.reason for rounds in outputs for stats in rounds]
    assert reasons[0] in ("loses", "probe")
    assert reasons[-1] == "pays"


def test_a_match_that_was_declined_comes_back_without_probes():
    common, planner = SharedCounts(), a_planner()
    poor = MadeUp(steady(0.0), matches={0.5: (0.5, 0.0)}, sources=("prompt-lookup",))
    good = MadeUp(steady(0.0), matches={0.5: (0.5, 1.0)}, sources=("prompt-lookup",))
    rounds = run(poor, common=common, planner=planner)
    assert not any(stats.num_drafted for stats in rounds[-20:])
    rounds = run(good, common=common, planner=planner)
    assert any(stats.num_drafted for stats in rounds)
    assert "probe" not in {stats.reason for stats in rounds}


def test_the_better_source_is_taken():
    text = MadeUp(steady(0.9), matches={0.5: (0.5, 0.1)}, sources=("prompt-lookup", "model"))
    assert {stats.source for stats in run(text)[-20:]} == {"model"}
    text = MadeUp(steady(0.1), matches={0.75: (0.5, 0.95)}, sources=("prompt-lookup", "model"))
    assert "prompt-lookup" in {stats.source for stats in run(text)[-20:] if stats.num_drafted}


def test_passes_keep_one_size_where_a_change_costs_more():
    sizes = [stats.pass_tokens for stats in run(TEXTS["~0.8"], curve="flat", change=1.0)]
    assert sum(a != b for a, b in pairwise(sizes)) <= 4
    sizes = [stats.pass_tokens for stats in run(TEXTS["~0.8"], curve="linear", change=0.0)]
    assert len(set(sizes)) >= 4


def test_lengths_of_a_run_that_must_repeat_do_not_follow_what_passes_cost():
    def lengths(curve):
        policy = IsolatedLength(AdaptiveLength(("model",), SharedCounts()))
        passes = machine_of(curve, 0.3).curve.main
        generator, drafted = Random(0), []
        for _ in range(40):
            plan = policy.answer(PlanRequest("model"))
            chances = (generator.random() for _ in range(plan.length))
            accepted = next((i for i, p in enumerate(chances) if p > 0.6), plan.length)
            seconds = passes.at(1 + plan.length, 16)
            policy.update(a_round(plan.length, accepted, seconds, reason=plan.reason))
            drafted.append(plan.floors)
        return drafted

    assert lengths("flat") == lengths("avx2")
    assert len(set(lengths("flat"))) > 1


def test_a_run_that_must_repeat_counts_rounds_without_a_match():
    def length(num_unmatched):
        policy = IsolatedLength(AdaptiveLength(("prompt-lookup",), SharedCounts()))
        for _ in range(num_unmatched):
            policy.update(a_round(reason="unmatched"))
        return policy.answer(PlanRequest("prompt-lookup", 0.8)).length

    assert length(30) > length(0)


def test_a_run_that_must_repeat_does_not_follow_who_shares_its_passes():
    def reasons(num_sequences):
        policy, found = IsolatedLength(AdaptiveLength(("model",), SharedCounts())), []
        for _ in range(200):
            plan = policy.answer(PlanRequest("model"))
            policy.update(a_round(plan.length, 0, num_sequences=num_sequences, reason=plan.reason))
            found.append(plan.reason)
        return found

    assert reasons(4) == reasons(1)
    assert {"loses", "probe"} <= set(reasons(1))


def test_the_length_of_the_prompt_is_no_cost_of_drafting():
    """Eight short texts, whose prompts the draft model reads, leave a long one as it is."""
    planner, common = a_planner(), SharedCounts()
    for _ in range(8):
        policy = AdaptiveLength(("model",), common)
        policy.update(replace(a_round(0, 0, 30.0), reason="prefill", pass_tokens=100))
        with_prompt = a_round(4, 4, drafting=10.4, draft_pass_tokens=104)
        policy.update(with_prompt)
        planner.learn(step_of(with_prompt))
    policy = AdaptiveLength(("model",), common)
    policy.update(replace(a_round(0, 0, 30.0), reason="prefill", pass_tokens=100))
    [plan] = planner.plan([policy.answer(PlanRequest("model"))], answering(1))
    assert plan.length >= 4


# A token more costs a fifth of a plain pass; a pass of the draft model a tenth, and half of that
# for each sequence more.
COSTS = FixedCurve(
    CostCurve(PassCurve({16: {1: 1.0, 101: 21.0}}), PassCurve({16: {1: 0.1, 17: 0.9}}))
)


def answering(number, num_tokens=None, num_prefill=0, num_cached=16):
    """The load of a step that answers so many sequences."""
    return Load(number, number, num_tokens or number, num_prefill, num_cached)


def bid(chance, **more):
    return Bid("model", None, chance, **more)


def match(chance, rival=None):
    return Bid("prompt-lookup", 0.5, chance, rival)


def lengths(bids, costs=COSTS, **load):
    load = answering(len(bids), **load)
    return [plan.length for plan in Planner(costs).plan(bids, load)]


def best_by_trying(chances):
    """The greatest tokens per second of two sequences, over all pairs of lengths."""
    rates = {}
    for a in range(16):
        for b in range(16):
            pair = (chances[0], a), (chances[1], b)
            tokens = sum(chance**n for chance, length in pair for n in range(length + 1))
            drafting = 0.15 * min(a, b) + 0.1 * (max(a, b) - min(a, b))
            # After a draft that was accepted, two tokens in the first pass.
            drafting += 0.05 * sum(chance**length for chance, length in pair if length)
            rates[a, b] = tokens / (1.0 + 0.2 * (1 + a + b) + drafting)
    return max(rates, key=rates.__getitem__), rates


@pytest.mark.parametrize("pair", [(0.9, 0.9), (0.95, 0.3), (0.7, 0.8), (0.0, 0.0), (1.0, 0.1)])
def test_no_pair_of_lengths_yields_more(pair):
    best, rates = best_by_trying(pair)
    assert rates[tuple(lengths([bid(chance) for chance in pair]))] == pytest.approx(
        rates[best], rel=0.003
    )


def test_texts_that_are_easy_to_guess_get_more_draft_tokens():
    easy, hard, useless = lengths([bid(0.95), bid(0.8), bid(0.0)])
    assert easy > hard > useless == 0


def test_more_sequences_get_fewer_draft_tokens_each():
    numbers = [lengths([bid(0.8)] * n)[0] for n in (1, 4, 16)]
    assert numbers[0] > numbers[1] >= numbers[2]


FLAT_THEN_STEEP = FixedCurve(CostCurve(PassCurve({16: {1: 1.0, 16: 1.0, 17: 3.0, 32: 40.0}})))


def test_what_the_pass_holds_already_is_part_of_its_price():
    bids = [match(0.9)] * 2
    assert sum(lengths(bids, FLAT_THEN_STEEP)) == 14
    assert sum(lengths(bids, FLAT_THEN_STEEP, num_tokens=10)) == 6


def test_matches_cost_no_passes_of_the_draft_model():
    lookup, model = lengths([match(0.7), bid(0.7)])
    assert lookup > model > 0
    main, beside = COSTS.curve.main, [match(0.8), bid(0.1)]
    slow = CostCurve(main, PassCurve({16: {1: 5.0, 17: 85.0}}))
    assert lengths(beside, FixedCurve(slow)) == lengths(beside, FixedCurve(CostCurve(main)))


def test_drafts_go_on_up_to_where_passes_become_expensive_and_no_further():
    assert lengths([match(0.9)] * 2, FLAT_THEN_STEEP) == [7, 7]


def test_no_draft_is_so_long_that_its_passes_hold_too_few_sequences():
    """A pass of the draft model costs the same for one sequence as for all."""
    costs = FixedCurve(
        CostCurve(PassCurve({16: {1: 1.0, 101: 2.0}}), PassCurve({16: {1: 0.5, 17: 0.5}}))
    )
    assert lengths([bid(0.9)] * 8, costs) == [3] * 8
    alone, *others = lengths([bid(0.99), *[bid(0.6)] * 7], costs)
    assert alone == max(others) < 5


def test_a_match_is_outbid_by_the_prices_of_the_step():
    """What a draft model costs is shared by all, and its drafts are longer where passes are few."""
    matched = match(0.5, bid(0.9))
    [alone] = Planner(COSTS).plan([matched], answering(1))
    assert (alone.length, alone.reason) == (0, OUTBID)
    beside = Planner(COSTS).plan([matched, bid(0.9)], answering(2))
    assert [plan.reason for plan in beside] == [OUTBID, ""]  # the other one waits for it
    planner = Planner(COSTS)
    [taken] = planner.plan([match(0.9, bid(0.9))], answering(1))
    assert taken.length > 0
    planner.plan([match(0.5, bid(0.3))], answering(1))
    [outbid] = planner.plan([match(0.5, bid(0.95))], answering(1))
    assert outbid.reason == OUTBID


def test_which_source_is_better_is_seen_again_once_there_is_a_price_of_a_second():
    """At first seconds look cheap: as if nothing were drafted."""
    planner, matched = Planner(COSTS), match(0.9, bid(0.95))
    reasons = [planner.plan([matched], answering(1))[0].reason]
    planner.plan([bid(0.95)], answering(1))
    reasons += [planner.plan([matched], answering(1))[0].reason]
    assert reasons == [OUTBID, "pays"]


def test_a_prompt_beside_changes_nothing_where_each_token_costs_the_same():
    """It takes its own time, whatever is drafted; the ratio of the whole step would draft on."""
    bids = [bid(0.9), bid(0.8)]
    assert lengths(bids, num_prefill=80) == lengths(bids) != [0, 0]


def test_more_is_drafted_where_a_prompt_has_made_the_pass_one_whose_tokens_are_cheap():
    steep_then_flat = FixedCurve(CostCurve(PassCurve({16: {1: 1.0, 32: 32.0, 96: 35.0}})))
    bids = [match(0.8)] * 2
    assert lengths(bids, steep_then_flat) == [0, 0]
    assert min(lengths(bids, steep_then_flat, num_prefill=30)) > 5


@pytest.mark.parametrize(
    ("number", "load"), [(2, {"num_tokens": 300}), (90, {}), (33, {"num_prefill": 512})]
)
def test_steps_of_any_size_are_planned(number, load):
    planner, load = Planner(COSTS), answering(number, **load)
    assert len(planner.plan([bid(0.9)] * number, load)) == number
    assert planner.pass_size(load.num_tokens, load) >= load.num_tokens


def test_a_step_in_which_nobody_drafts_has_no_plans():
    assert Planner(COSTS).plan([], answering(1)) == []
    assert Planner(COSTS).plan([], answering(3)) == []


def test_prompts_bring_no_token():
    """Of eight sequences one is answered: drafting for it is no small part of what is gained."""
    alone, beside = Load(2, 1, 1, 0, 16), Load(8, 1, 1, 40, 16)
    plans = [Planner(COSTS).plan([bid(0.9)], load)[0] for load in (alone, beside)]
    assert plans[0].length == plans[1].length > 0


def test_what_does_not_pay_is_probed_once_in_a_step_where_it_is_likeliest_to_succeed():
    bids = [bid(chance, is_hopeful=True) for chance in (0.01, 0.05, 0.02)]
    plans = Planner(COSTS).plan(bids, answering(3))
    assert [(plan.length, plan.reason) for plan in plans] == [
        (0, "loses"),
        (1, "probe"),
        (0, "loses"),
    ]


def probes(bids, load, steps=4000):
    planner = Planner(COSTS)
    plans = [planner.plan(bids, load) for _ in range(steps)]
    return sum(plan.reason == "probe" for step in plans for plan in step)


def test_probes_are_rarer_the_more_they_take():
    """After rounds without it, the draft model reads all that has been written since."""
    soon, late = (probes([bid(0.01, num_unread=n)], answering(1)) for n in (1, 100))
    assert soon > 5 * late > 0


def test_probes_are_as_rare_where_many_sequences_draft_nothing():
    assert probes([bid(0.01)] * 8, answering(8)) <= probes([bid(0.01)], answering(1))


def test_a_draft_ends_where_its_model_is_unsure_for_a_sequence_that_is_alone():
    sure = bid(0.9, calibrated=lambda confidence: confidence)
    [alone] = Planner(COSTS).plan([sure], answering(1))
    assert alone.wants_confidence
    assert alone.length == len(alone.floors) > lengths([bid(0.9)])[0]
    assert alone.ends_after([0.1])
    assert not alone.ends_after([0.99])
    beside = Planner(COSTS).plan([sure] * 2, answering(2))
    assert not any(plan.wants_confidence for plan in beside)


def test_the_confidence_of_a_quick_draft_model_is_not_looked_at():
    quick = FixedCurve(CostCurve(PassCurve({16: {1: 4e-3, 8: 5e-3}}), PassCurve({16: {1: 3e-4}})))
    [plan] = Planner(quick).plan([bid(0.9, calibrated=lambda confidence: confidence)], answering(1))
    assert plan.length > 1
    assert not plan.wants_confidence


def test_the_size_to_compile_counts_what_each_sequence_adds_to_a_pass():
    """Else passes over many sequences would seem to be short, and so their best sizes."""
    main = PassCurve({16: {1: 1.0, 4: 1.0, 8: 1.3, 16: 3.0}}, per_sequence=1.0)
    planner = Planner(FixedCurve(CostCurve(main, PassCurve({16: {1: 1e-3}}))))
    planner.plan([bid(0.9)] * 4, answering(4))
    assert planner.wished > 8


@pytest.mark.parametrize(
    ("chances", "load", "is_kept"),
    [
        ((0.93, 0.5), answering(2, num_cached=24), True),
        ((0.955, 0.465), answering(2), True),
        ((0.5, 0.5), answering(2, num_cached=24), False),
        ((0.92, 0.5), answering(2, num_cached=1000), False),
        ((0.92, 0.5), answering(2, num_prefill=7), False),
        ((0.92, 0.5), answering(9), False),
    ],
)
def test_plans_are_kept_while_everybody_bids_about_the_same(chances, load, is_kept):
    planner = Planner(COSTS)
    for _ in range(2):  # the first time it finds the home size
        plans = planner.plan([bid(0.92), bid(0.5)], answering(2))
    assert (planner.plan(list(map(bid, chances)), load) is plans) is is_kept


def test_what_one_sequence_tells_of_confidences_ends_no_draft_of_the_next():
    planner = Planner(COSTS)
    first, second = (bid(0.9, calibrated=lambda confidence, n=n: confidence / n) for n in (1, 2))
    planner.plan([first], answering(1))  # finds the home size
    [before], [after] = (planner.plan([each], answering(1)) for each in (first, second))
    assert (before.acceptance, after.acceptance) == (first.calibrated, second.calibrated)


def test_a_round_without_drafts_counts_in_what_a_second_is_worth():
    """Where matches are rare, the time of other rounds is worth less, and drafts are longer."""

    def length(num_plain):
        planner = Planner(FixedCurve(CostCurve(PassCurve({16: {1: 1.0, 16: 3.0}}))))
        for chance in (0.8, 0.7):  # another one, so that it is planned anew
            for _ in range(num_plain):
                planner.plan([], answering(1))
            [plan] = planner.plan([match(chance)], answering(1))
        return plan.length

    assert length(30) > length(2)


def test_what_a_sequence_did_alone_has_no_part_in_what_several_do():
    costs = FixedCurve(CostCurve(PassCurve({16: {1: 1.0, 32: 6.0}})))
    planner, bids = Planner(costs), [match(0.8)] * 2
    for _ in range(50):
        planner.plan([], answering(1))
    found = [plan.length for plan in planner.plan(bids, answering(2))]
    assert found == lengths(bids, costs)


def test_the_home_size_stays_where_another_one_gains_less_than_the_change():
    def sizes(change):
        main = PassCurve({16: {1: 1.0, 4: 1.2, 8: 1.6, 16: 3.0}}, change=change)
        planner = Planner(FixedCurve(CostCurve(main)))
        drafts = [planner.plan([match(p)], answering(1))[0].length for p in (0.76, 0.84) * 20]
        return len(set(drafts[10:]))

    assert sizes(0.0) == 2
    assert sizes(1.0) == 1


def test_plans_are_made_anew_when_passes_cost_something_else():
    costs = LiveCurve(COSTS.curve)
    planner = Planner(costs)
    for _ in range(2):  # the first time it finds the home size
        before = planner.plan([bid(0.9)] * 2, answering(2))
    costs.curve = FLAT_THEN_STEEP.curve
    assert planner.plan([bid(0.9)] * 2, answering(2)) != before


def test_what_seconds_were_worth_is_forgotten_when_a_nominal_curve_is_measured():
    def measured_after(num_rounds):
        costs = LiveCurve(NOMINAL)
        planner = Planner(costs)
        for _ in range(num_rounds):
            planner.plan([], answering(1))
            planner.plan([match(0.7)], answering(1))
        main = {size: 0.01 * seconds for size, seconds in NOMINAL.main.seconds[16].items()}
        costs.curve = CostCurve(PassCurve({16: main}), PassCurve({16: {1: 0.001}}), sweeps=5)
        [plan] = planner.plan([match(0.6)], answering(1))
        return plan.length

    assert measured_after(50) == measured_after(0) < 8


def test_rounds_in_which_a_match_was_outbid_count_as_those_of_the_draft_model():
    def length(*matched):
        planner = Planner(COSTS)
        planner.plan([match(0.3)], answering(1))
        for _ in range(40):
            for bids in ([each] for each in matched):
                assert planner.plan(bids, answering(1))[0].reason == OUTBID
            planner.plan([bid(0.95)], answering(1))
        [plan] = planner.plan([bid(0.9)], answering(1))
        return plan.length

    assert length(match(0.3, bid(0.95))) == length()


def test_plans_follow_the_bids():
    planner = Planner(COSTS)
    for bids in ([bid(0.9), bid(0.5)], [bid(0.9), bid(0.95)]):
        found = [plan.length for plan in planner.plan(bids, answering(2))]
        assert found == lengths(bids)
    matched, beside = planner.plan([match(0.95), bid(0.95)], answering(2))
    assert matched.length > beside.length
    [plan, _] = planner.plan([bid(0.9, min_confidence=0.4), bid(0.5)], answering(2))
    assert plan.min_confidence == 0.4


def test_expectations_are_those_of_the_bid():
    [plan] = Planner(COSTS).plan([bid(0.9)], answering(1))
    assert plan.expected[:2] == pytest.approx((0.9, 0.81))


@pytest.mark.parametrize(("number", "fed", "size"), [(1, 5, 7), (9, 18, 21)])
def test_passes_are_padded_to_static_shapes_beside_the_usual_ones(number, fed, size):
    main = PassCurve({16: {1: 1.0, 101: 2.0}}, change=0.5, static=frozenset({7, 21}))
    planner = Planner(FixedCurve(CostCurve(main)))
    assert planner.pass_size(fed, answering(number)) == size


def test_a_draft_need_not_fill_the_pass_that_it_is_padded_to():
    main = PassCurve({16: {1: 1.0, 16: 1.15}}, change=5.0)
    planner = Planner(FixedCurve(CostCurve(main, PassCurve({16: {1: 0.05}}))))
    planner.plan([bid(0.97)], answering(1))
    [plan] = planner.plan([bid(0.8)], answering(1))
    assert 0 < plan.length < 12
    assert planner.pass_size(1 + plan.length, answering(1)) > 1 + plan.length


def test_a_pass_has_the_size_of_the_last_one_where_a_change_costs_more():
    planner = Planner(FixedCurve(CostCurve(PassCurve({16: {1: 1.0, 16: 1.15}}, change=0.5))))
    planner.learn(StepStats(PassStats(7, 16, 1, 0, 1.0)))
    assert [planner.pass_size(n, answering(1)) for n in (5, 6, 7)] == [7, 7, 7]
    planner.learn(StepStats(PassStats(3, 16, 1, 0, 1.0)), static={3})
    assert planner.pass_size(5, answering(1)) == 7


def test_a_sequence_tells_what_it_has_learnt():
    policy = AdaptiveLength(("prompt-lookup", "model"), SharedCounts(), min_confidence=0.2)
    policy.update(replace(a_round(0, 0), reason="prefill", pass_tokens=30))
    found = policy.answer(PlanRequest("model"))
    assert (found.num_unread, found.min_confidence, found.takes_passes) == (30, 0.2, True)
    for _ in range(40):
        policy.update(a_round(4, 4))
    found = policy.answer(PlanRequest("model"))
    assert found.acceptance > 0.9
    assert (found.num_unread, found.is_hopeful) == (1, False)
    policy.update(a_round(1, 1, reason="probe"))
    assert policy.answer(PlanRequest("model")).is_hopeful
    lookup = policy.answer(PlanRequest("prompt-lookup", 0.5))
    assert not lookup.takes_passes
    assert lookup.rival == policy.answer(PlanRequest("model"))


def test_a_draft_model_that_has_failed_outbids_no_match():
    policy = AdaptiveLength(("suffix", "model"), SharedCounts())
    assert policy.answer(PlanRequest("suffix", 0.5)).rival is not None
    policy.update(a_round(draft_failed=True))
    policy.update(a_round())
    assert policy.answer(PlanRequest("suffix", 0.5)).rival is None


@pytest.mark.parametrize("draft", [NOMINAL.draft, None])
def test_a_source_that_is_never_right_is_probed_as_seldom_as_a_draft_model(draft):
    def probes(source):
        planner = Planner(FixedCurve(CostCurve(NOMINAL.main, draft)))
        policy, found = AdaptiveLength((source,), SharedCounts()), Counter()
        for _ in range(400):
            [plan] = planner.plan([policy.answer(PlanRequest(source))], Load())
            policy.update(a_round(plan.length, 0, reason=plan.reason, source=source))
            found[plan.reason] += 1
        return found["probe"]

    assert 0 < probes("head") < 20
    assert probes("head") == probes("model")


def test_matches_that_do_not_pay_either_do_not_make_probes_more_frequent():
    def probes(asks):
        planner = Planner(FixedCurve(NOMINAL))
        policy, found = AdaptiveLength(("suffix", "model"), SharedCounts()), Counter()
        for _ in range(2000):
            for ask in asks:
                [plan] = planner.plan([policy.answer(ask)], Load())
                if plan.reason != "outbid":
                    policy.update(a_round(plan.length, 0, reason=plan.reason))
                    found[plan.reason] += 1
        return found["probe"]

    alone = probes([PlanRequest("model")])
    assert 0 < probes([PlanRequest("suffix", 0.0), PlanRequest("model")]) <= alone + 1
