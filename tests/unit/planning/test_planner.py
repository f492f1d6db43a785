"""The planner, of one sequence and of many that share passes, and what it learns of them."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from ov_specdec.options.generation import MAX_REQUESTED_LENGTH
from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import NOMINAL, CostCurve, Costs, PassCurve
from ov_specdec.planning.plan import EXPECTED, Estimate, Offer, Plan
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.planning.policies import HeuristicLength, IsolatedLength, PlannedLength
from ov_specdec.planning.ranking import Ranking
from tests.support.rounds import a_round

# A token more costs a fifth of a plain pass; a pass of the draft model a tenth, and half of that
# for each sequence more.
COSTS = Costs(CostCurve(PassCurve({1: 1.0, 101: 21.0}), PassCurve({1: 0.1, 17: 0.9})))


def asking(source, confidence=None):
    """The request of a drafter with one offer."""
    return (Offer(source, confidence),)


def test_a_run_that_must_repeat_follows_itself_alone():
    def taken(num_unread=1, **passes):
        policy, generator, plans = IsolatedLength(), Random(0), []
        for number in range(200):
            plan = policy.answer((Offer("model", num_unread=num_unread),))
            chances = (generator.random() for _ in range(plan.length))
            rate = 0.6 if number < 40 else 0.0
            accepted = next((i for i, p in enumerate(chances) if p > rate), plan.length)
            policy.update(a_round(plan.length, accepted, reason=plan.reason, **passes))
            plans.append((plan.length, plan.reason))
        return plans

    plans = taken()
    assert plans == taken(seconds=7.0, drafting=3.0) == taken(num_sequences=4) == taken(5000)
    assert len({length for length, _ in plans}) > 2
    assert {"pays", "loses", "probe"} == {reason for _, reason in plans}


def answering(number, num_tokens=None, num_prefill=0):
    """The load of a step that answers so many sequences."""
    return Load(number, number, num_tokens or number, num_prefill=num_prefill)


def drafted(chance, **more):
    return replace(match(chance), **{"offer": Offer("model"), **more})


def match(chance):
    return Estimate(Offer("prompt-lookup", 0.5, 1), chance)


def lengths(estimates, costs=COSTS, **load):
    load = answering(len(estimates), **load)
    return [plan.length for plan in Planner(costs).plan(estimates, load).plans]


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
    assert rates[tuple(lengths([drafted(chance) for chance in pair]))] == pytest.approx(
        rates[best], rel=0.003
    )


@pytest.mark.parametrize("chances", [(0.9,), (0.9, 0.7, 0.9)])
def test_a_step_returns_to_the_draft_model_once(chances):
    estimates, curve = [drafted(chance) for chance in chances], COSTS.curve
    resuming = replace(curve, draft=replace(curve.draft, resumed=0.1))
    found = Ranking.of(estimates, resuming)
    assert found.seconds == pytest.approx(
        Ranking.of(estimates, curve).seconds + 0.1 * (found.number > 0)
    )


def test_forced_tokens_fill_a_pass_like_draft_tokens():
    main = PassCurve({1: 1.0, 8: 1.2, 9: 4.0, 32: 30.0}, change=2.0)
    planner, sizes, lengths = Planner(Costs(CostCurve(main))), [], []
    for step in range(24):
        forced = (0, 3, 5, 0)[step % 4]
        step = planner.plan([match(0.9)], Load(1, 1, 1 + forced, num_forced=forced))
        sizes.append(step.size)
        lengths.append(step.plans[0].length)
    assert set(sizes) == {8}
    assert lengths == [7, 4, 2, 7] * 6
    # Nor do they make it forget its size, which a poor match alone does not move.
    planner.plan([match(0.9)], Load(1, 1, 4, num_forced=3))
    assert planner.plan([match(0.05)], Load(1, 1, 1)).size == 8


def test_forced_tokens_are_worth_no_less_than_they_cost():
    """What is planned besides them depends on the costs of larger passes alone."""
    for forced in (0, 2, 6):
        best = {
            length: (1 + forced + sum(0.8**n for n in range(1, length + 1))) for length in range(16)
        }
        rates = {n: total / (1.0 + 0.2 * (n + forced)) for n, total in best.items()}
        [plan] = Planner(COSTS).plan([match(0.8)], Load(1, 1, 1 + forced, num_forced=forced)).plans
        assert rates[plan.length] == pytest.approx(max(rates.values()), rel=0.003)


def test_the_likeliest_of_what_does_not_pay_is_probed_once_in_a_step():
    estimates = [drafted(chance, is_hopeful=True) for chance in (0.01, 0.05, 0.02)]
    estimates.append(replace(match(0.06), is_hopeful=True))  # whose first token is known
    plans = Planner(COSTS).plan(estimates, answering(4)).plans
    assert [(plan.length, plan.reason) for plan in plans] == [
        (0, "loses"),
        (1, "probe"),
        (0, "loses"),
        (0, "loses"),
    ]


def test_tokens_of_a_sequence_that_is_ahead_count_less():
    costs = Costs(CostCurve(PassCurve({1: 1.0, 101: 21.0})))

    def shares(throughput):
        ahead = replace(match(0.8), throughput=throughput)
        plans = Planner(costs).plan([ahead, match(0.8)], answering(2)).plans
        return [plan.length for plan in plans]

    assert shares(1.0)[0] == shares(1.0)[1]
    assert shares(3.0)[0] < shares(3.0)[1]


def test_drafts_get_shorter_behind_longer_texts_and_end_where_reading_costs_more():
    curve = CostCurve(PassCurve({1: 1.0, 101: 6.0}, per_read=1e-4), PassCurve({1: 0.02}))

    def lengths(num_cached, num_sequences):
        estimates = [replace(drafted(0.8), num_cached=num_cached)] * num_sequences
        load = Load(*[num_sequences] * 3, num_read=num_sequences * num_cached)
        return sum(plan.length for plan in Planner(Costs(curve)).plan(estimates, load).plans)

    for number in (1, 4):
        found = [lengths(num_cached, number) for num_cached in (0, 500, 2000, 8000)]
        assert found == sorted(found, reverse=True)
        assert found[0] > 2 * found[-1]
    assert lengths(50_000, 4) == 0


def test_drafting_for_several_counts_changes_of_size_of_the_draft():
    curves = (
        CostCurve(PassCurve({1: 1.0, 101: 21.0}), PassCurve({1: 0.1, 17: 0.9}, change))
        for change in (0.0, 0.5)
    )
    seconds = [Ranking.of([drafted(0.9)] * 2, curve).seconds[-1] for curve in curves]
    assert seconds[1][-1] == pytest.approx(seconds[0][-1] + 2 * 0.5)


def test_plans_follow_from_ratios_whatever_costs_are_counted_in():
    """So a nominal curve may become one in seconds between two steps."""

    def after(num_rounds, scale):
        costs = Costs(NOMINAL)
        planner = Planner(costs)
        for _ in range(num_rounds):
            planner.plan([], answering(1))
            planner.plan([match(0.7)], answering(1))
        main = {size: scale * seconds for size, seconds in NOMINAL.main.seconds.items()}
        costs.curve = CostCurve(PassCurve(main), PassCurve({1: 0.1 * scale}))
        [plan] = planner.plan([match(0.6)], answering(1)).plans
        return plan.length

    assert after(50, 0.01) == after(50, 1.0) == after(0, 0.01) < 8


def sizes(change, rates, static=()):
    """Of passes where another number of draft tokens is best in each step."""
    main = PassCurve({1: 1.0, 4: 1.2, 8: 1.6, 16: 3.0}, change=change, static=frozenset(static))
    planner = Planner(Costs(CostCurve(main)))
    return [planner.plan([match(rate)], answering(1)).size for rate in rates]


def test_a_size_is_left_once_others_have_gained_as_much_as_a_change_takes():
    rates = (0.9,) * 10 + (0.0,) * 30
    found = sizes(1.0, rates)
    assert found[9] == found[10] > 1
    assert found[-1] == 1
    assert sizes(90.0, rates)[-1] > 1


def test_a_match_after_many_steps_without_one_is_taken_at_once():
    for change in (0.0, 0.5):
        planner = Planner(Costs(CostCurve(PassCurve({1: 1.0, 16: 2.0}, change))))
        for _ in range(100):
            planner.plan([], answering(1))
        assert planner.plan([match(0.9)], answering(1)).plans[0].length > 5


def test_a_draft_model_that_pays_drafts_after_matches_that_paid_more():
    planner, first = Planner(COSTS), lengths([drafted(0.8)])[0]
    for _ in range(100):
        planner.plan([match(0.95)], answering(1))
    assert planner.plan([drafted(0.8)], answering(1)).plans[0].length == first > 1


def test_a_choice_without_drafts_stays_until_costs_or_what_drafts_are_worth_change():
    curve = CostCurve(PassCurve({1: 1.0, 16: 2.0}, per_read=0.001))
    planner = Planner(Costs(curve))

    def drafts(rate, num_cached=0):
        estimate = replace(match(rate), num_cached=num_cached)
        (plan,) = planner.plan([estimate], answering(1)).plans
        assert plan.offer == estimate.offer
        return plan.length > 0

    assert [drafts(0.8, num_cached) for num_cached in (0, 5000, 0)] == [True, False, False]
    assert drafts(0.9) is True
    assert drafts(0.8) is True
    assert drafts(0.8, 5000) is False
    planner.costs.curve = replace(curve, is_measured=True)
    assert drafts(0.8) is True


def test_drafts_come_though_a_change_of_size_takes_more_than_the_first_of_them_gains():
    planner = Planner(Costs(CostCurve(PassCurve({1: 1.0, 2: 1.3, 16: 9.0}, change=1.0))))
    planner.plan([], answering(1))
    steps = [planner.plan([match(0.6)], answering(1)).plans[0].length for _ in range(24)]
    assert steps[0] == 0
    assert steps[-1] == 1


def test_a_static_size_is_left_once_others_have_gained_as_much_as_a_change_takes():
    assert sizes(1.0, (0.95,) * 10 + (0.6,) * 20, static=(4,))[-1] == 4
    found = sizes(2.0, (0.9,) * 20, static=(2,))
    assert found[0] == 2
    assert found[-1] > 4
    assert sizes(90.0, (0.9,) * 20, static=(2,))[-1] == 2
    assert sizes(0.5, (0.0,) * 9, static=(4,))[-1] == 1, "nor does it hold plain steps"
    # It leaves the other one prepared: both are as free in later steps.
    assert sizes(1.0, (0.9, 0.6) * 15, static=(8,))[-4:] == [8, 4] * 2


def test_a_size_is_wanted_that_is_best_once_it_is_static_though_a_static_one_is_taken():
    rows = {1: 1.0, 2: 1.0, 4: 1.3, 8: 3.0}
    main = PassCurve(rows, change=1.0, static=frozenset({2}), static_factor=0.6)
    planner = Planner(Costs(CostCurve(main)))
    for _ in range(30):
        plan = planner.plan([match(0.9)], answering(1))
        assert (plan.size, plan.wanted) == (2, 4)
    assert planner.plan([match(0.9)], answering(1, num_prefill=8)).wanted == 0


def test_a_static_shape_reads_the_cache_no_faster():
    main = PassCurve({1: 1.0, 2: 1.0, 8: 3.0}, 0.0, 1.0, frozenset({2}), static_factor=0.6)
    load = replace(answering(1), num_read=10)
    assert Planner(Costs(CostCurve(main))).plan([match(0.1)], load).wanted == 2


def test_a_sequence_tells_what_it_has_learnt():
    policy = PlannedLength(Counts(), COSTS)
    policy.update(replace(a_round(0, 0), reason="prefill", pass_tokens=30))
    assert policy.answer(asking("model")).num_expected == EXPECTED
    for _ in range(40):
        policy.update(a_round(4, 4))
    found = policy.answer(asking("model"))
    assert found.rate**2 > 0.8
    assert 3.0 < found.throughput < 5.0
    assert (found.num_expected, found.is_hopeful) == (200, False)
    policy.update(a_round(1, 1, reason="probe"))
    assert policy.answer(asking("model")).is_hopeful


def test_a_draft_model_waits_where_it_has_to_read_more_than_it_will_save():
    curve = CostCurve(PassCurve({1: 1.0}), PassCurve({1: 0.1, 1001: 100.1}))

    def drafts(num_unread, num_expected):
        estimate = replace(drafted(0.9), num_expected=num_expected)
        estimate = replace(estimate, offer=replace(estimate.offer, num_unread=num_unread))
        return Planner(Costs(curve)).plan([estimate], Load()).plans[0].length > 0

    # A token saves 0.6 seconds, and to read one takes 0.1.
    assert [drafts(1000, expected) for expected in (40, 128, 256)] == [False, False, True]
    assert drafts(3000, 256) is False
    assert drafts(100, 40) is True
    assert drafts(1, 1) is True


def test_a_text_that_has_much_to_read_keeps_no_other_from_being_probed():
    def unread(chance, number):
        return drafted(chance, offer=Offer("model", num_unread=number))

    planner, estimates = Planner(COSTS), [unread(0.02, 30_000), unread(0.01, 2)]
    steps = [planner.plan(estimates, answering(2)).plans for _ in range(200)]
    probed = Counter(i for plans in steps for i, plan in enumerate(plans) if plan.length)
    assert 0 < probed[1] < 20
    assert not probed[0]


@pytest.mark.parametrize("draft", [PassCurve({1: 0.1}), None])
def test_a_source_that_is_never_right_is_seldom_probed_and_then_drafts(draft):
    def probes(source):
        planner = Planner(Costs(CostCurve(NOMINAL.main, draft)))
        policy, found = PlannedLength(Counts(), COSTS), Counter()
        for _ in range(400):
            [plan] = planner.plan([policy.answer(asking(source))], Load()).plans
            policy.update(a_round(plan.length, 0, reason=plan.reason, source=source))
            found[plan.reason] += 1
        for _ in range(100):  # it is right from now on
            [plan] = planner.plan([policy.answer(asking(source))], Load()).plans
            policy.update(a_round(plan.length, plan.length, reason=plan.reason, source=source))
        assert plan.reason == "pays"
        return found["probe"]

    assert 0 < probes("head") <= 40  # a token more takes a tenth of a pass, of 1 % of 400
    assert probes("head") == probes("model")


@pytest.mark.parametrize(
    ("start", "drafted", "accepted", "expected"),
    [
        (5, 5, 5, 7),  # all accepted
        (5, 5, 4, 4),
        (5, 5, 0, 4),
        (1, 1, 0, 1),  # never below one
        (5, 2, 2, 7),  # the budget or the lookup allowed just two, and both were accepted
        (5, 0, 0, 5),  # nothing drafted, nothing learnt
        (MAX_REQUESTED_LENGTH - 1, 9, 9, MAX_REQUESTED_LENGTH),
        (MAX_REQUESTED_LENGTH + 9, 9, 9, MAX_REQUESTED_LENGTH + 9),  # asked for
    ],
)
def test_heuristic_follows_the_last_round(start, drafted, accepted, expected):
    policy = HeuristicLength(start)
    policy.update(a_round(drafted, accepted))
    assert policy.answer(asking("model")).length == expected


@pytest.mark.parametrize(("room", "length"), [(9, 4), (4, 4), (3, 3), (0, 0), (-1, 0)])
def test_a_plan_stays_within_the_room_there_is(room, length):
    plan = Plan(4, "constant", rate=0.1).within(room)
    assert (plan.length, plan.rate) == (length, 0.1)
