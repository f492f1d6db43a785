"""The planner, on simulated machines and texts."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from ov_specdec.planning.acceptance import Common
from ov_specdec.planning.adaptive import AdaptiveLength
from ov_specdec.planning.costs import NOMINAL, CostCurve, FixedCurve, LiveCurve, PassCurve
from ov_specdec.stats import RoundStats
from tests.benchmarks.simulated.machine import Machine, rounds_of
from tests.benchmarks.simulated.texts import TEXTS, MadeUp, compare, machine_of, measured, steady
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
    assert compare(curve, change, text)["to best"] >= 0.97


WORST = {
    ("linear", 1.0, "0.95"): 0.94,
    ("stepped", 1.0, "0.95"): 0.94,
    ("linear", 0.3, "0.95"): 0.955,
    ("flat", 1.0, "0.95"): 0.955,
}
"""Where texts are short for learning that long drafts pay: less than 0.97 of the best."""


@pytest.mark.parametrize(("case", "least"), WORST.items())
def test_the_worst_machines_and_texts_keep_what_they_reach(case, least):
    assert compare(*case)["to best"] >= least


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
    assert compare(curve, change, text)["to plain"] >= 0.985


def run(text, seed=0, curve="linear", change=0.3, common=None, policy=None):
    """One text on a machine that nothing disturbs."""
    machine = Machine(machine_of(curve, change).curve)
    generator = Random(seed)
    live = measured(machine, generator)
    policy = policy or AdaptiveLength(text.sources, live, common or Common())
    return [stats for stats, _ in rounds_of(policy, text, machine, generator, live)]


def test_probes_of_a_useless_draft_take_one_hundredth_of_the_time():
    common = Common()
    for _ in range(4):
        run(TEXTS["0.0"], common=common)
    rounds = [stats for _ in range(8) for stats in run(TEXTS["0.0"], common=common)]
    reasons = {stats.reason for stats in rounds}
    assert reasons == {"loses", "probe"}
    assert sum(stats.seconds for stats in rounds) <= 1.015 * len(rounds)


def test_a_probe_is_paid_for_with_what_it_loses():
    def left(accepted):
        common = Common()
        AdaptiveLength(("model",), FixedCurve(NOMINAL), common).update(
            a_round(1, accepted, reason="probe")
        )
        return common.credit

    assert left(0) < left(1)
    assert left(0) < -NOMINAL.draft.at(1, 16)


def test_probes_of_a_repeatable_text_do_not_follow_who_shares_its_passes():
    def saved(costs, num_sequences):
        common = Common()
        plain = replace(a_round(0, 0), num_sequences=num_sequences)
        AdaptiveLength(("model",), costs, common).update(plain)
        return common.credit

    assert saved(FixedCurve(NOMINAL), 4) == saved(FixedCurve(NOMINAL), 1) > 0
    assert saved(LiveCurve(NOMINAL), 4) == saved(LiveCurve(NOMINAL), 1) / 4


def test_a_probe_that_succeeds_is_followed_by_drafts():
    common = Common()
    assert run(TEXTS["0.0"], common=common)[-1].reason == "loses"
    reasons = [stats.reason for _ in range(4) for stats in run(TEXTS["1.0"], common=common)]
    assert reasons[0] in ("loses", "probe")
    assert reasons[-1] == "pays"


def test_a_match_that_was_declined_comes_back_without_probes():
    common = Common()
    poor = MadeUp(steady(0.0), matches={0.5: (0.5, 0.0)}, sources=("prompt-lookup",))
    good = MadeUp(steady(0.0), matches={0.5: (0.5, 1.0)}, sources=("prompt-lookup",))
    assert not any(stats.num_drafted for stats in run(poor, common=common)[-20:])
    rounds = run(good, common=common)
    assert any(stats.num_drafted for stats in rounds)
    assert "probe" not in {stats.reason for stats in rounds}


def test_the_better_source_is_taken():
    text = MadeUp(steady(0.9), matches={0.5: (0.5, 0.1)}, sources=("prompt-lookup", "model"))
    assert {stats.source for stats in run(text)[-20:]} == {"model"}
    text = MadeUp(steady(0.1), matches={0.75: (0.5, 0.95)}, sources=("prompt-lookup", "model"))
    assert "prompt-lookup" in {stats.source for stats in run(text)[-20:] if stats.num_drafted}


def test_a_draft_model_that_has_failed_outbids_no_match():
    planner = AdaptiveLength(("suffix", "model"), FixedCurve(NOMINAL), Common())
    for _ in range(20):
        planner.update(a_round(4, 4))
        planner.update(a_round(4, 1, source="suffix", match_confidence=0.5))
    assert planner.plan("suffix", 0.5).reason == "outbid"
    planner.update(a_round(draft_failed=True))
    assert planner.plan("suffix", 0.5).reason != "outbid"


def test_passes_keep_one_size_where_a_change_costs_more():
    sizes = [stats.pass_tokens for stats in run(TEXTS["~0.8"], curve="flat", change=1.0)]
    assert sum(a != b for a, b in pairwise(sizes)) <= 4
    sizes = [stats.pass_tokens for stats in run(TEXTS["~0.8"], curve="linear", change=0.0)]
    assert len(set(sizes)) >= 4


def test_lengths_of_a_run_that_must_repeat_do_not_follow_the_clock():
    def lengths(curve):
        policy = AdaptiveLength(("model",), FixedCurve(NOMINAL), Common())
        return [stats.num_drafted for stats in run(TEXTS["~0.6"], curve=curve, policy=policy)]

    assert lengths("flat") == lengths("avx2")


def test_the_length_of_the_prompt_is_no_cost_of_drafting():
    """Eight short texts, whose prompts the draft model reads, leave a long one as it is."""
    common, live = Common(), measured(machine_of("linear", 0.3), Random(0))
    for _ in range(8):
        policy = AdaptiveLength(("model",), live, common)
        policy.update(RoundStats(0, 0, 1, 0, 30.0, 0, 30.0, 100, reason="prefill"))
        live_round = a_round(4, 4, drafting=10.4, draft_pass_tokens=104)
        policy.update(live_round)
        live.learn(step_of(live_round))
    policy = AdaptiveLength(("model",), live, common)
    policy.update(RoundStats(0, 0, 1, 0, 30.0, 0, 30.0, 100, reason="prefill"))
    assert policy.plan("model").length >= 4


def test_passes_are_padded_to_fixed_sizes_beside_the_usual_ones():
    main = PassCurve({16: {1: 1.0, 16: 1.15}}, change=0.5, static=frozenset({7}))
    policy = AdaptiveLength(("model",), FixedCurve(CostCurve(main, NOMINAL.draft)), Common())
    policy.plan("model")
    assert policy.pass_size(5) == 7
