"""The adaptive draft length, on simulated machines and drafts."""

import itertools

import numpy as np
import pytest

from ov_specdec.speculation.acceptance import DraftHistory
from ov_specdec.speculation.adaptive import MAX_LENGTH, AdaptiveLength
from ov_specdec.speculation.cost_model import OLD, CostModel
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.stats import RoundStats

PLAIN = 1.0
"""Seconds of a pass of the main model over one token; other times are multiples of it."""

CHANGE = 0.8
"""Seconds that a pass takes longer if its size is not that of the last one."""


def prefill(policy):
    policy.update(RoundStats(0, 0, 1, 0.0, 30 * PLAIN, 0.0, 30 * PLAIN, pass_tokens=100))


def a_round(policy, accepted, drafting=0.1, verifying=0.1, noise=1.0, last_size=0):
    """One round of a simulated machine, whose draft has `accepted(n)` of n candidates accepted."""
    plan = policy.plan("model")
    num_accepted = accepted(plan.length)
    size = policy.pass_size(plan.length + 1)
    draft_seconds = noise * plan.length * drafting
    seconds = noise * (PLAIN + (size - 1) * verifying + (CHANGE if size != last_size else 0.0))
    stats = RoundStats(
        plan.length,
        num_accepted,
        num_accepted + 1,
        draft_seconds,
        seconds,
        0.0,
        seconds + draft_seconds,
        size,
        "model",
        plan.length,
        plan.reason,
    )
    policy.update(stats)
    return stats


def simulate(policy, acceptance, extra, num_tokens, *, seed=0, noise=0.05):
    """Tokens per second over a generation; candidates are accepted with the given chance.

    extra: seconds that a candidate adds, half of them for drafting. noise: relative deviation of
    every round's time; one round in twenty takes three times as long, as on a busy machine.
    """
    generator = np.random.default_rng(seed)

    def accepted(length):
        return next((i for i in range(length) if generator.random() >= acceptance), length)

    tokens, seconds, last_size = 1, 0.0, 100
    prefill(policy)
    while tokens < num_tokens:
        slower = generator.normal(1.0, noise) * (3.0 if generator.random() < 0.05 else 1.0)
        stats = a_round(policy, accepted, extra / 2, extra / 2, slower, last_size)
        last_size = stats.pass_tokens
        tokens += stats.num_generated
        seconds += stats.seconds
    return tokens / seconds


def adaptive():
    return AdaptiveLength(("model",), CostModel(), DraftHistory())


def experienced(acceptance, extra):
    """The policy of a second generation."""
    learned = (CostModel(), DraftHistory())
    simulate(AdaptiveLength(("model",), *learned), acceptance, extra, 256, seed=99)
    return AdaptiveLength(("model",), *learned)


def mean_speed(make_policy, acceptance, extra, num_tokens, *, runs=20):
    speeds = [
        simulate(make_policy(), acceptance, extra, num_tokens, seed=seed) for seed in range(runs)
    ]
    return np.mean(speeds)


def best_constant(acceptance, extra, num_tokens):
    return max(
        mean_speed(lambda n=n: ConstantLength(n), acceptance, extra, num_tokens)
        for n in range(MAX_LENGTH + 1)
    )


@pytest.mark.parametrize("extra", [0.05, 0.15, 0.4])
def test_with_a_useless_draft_it_is_hardly_slower_than_plain_decoding(extra):
    plain = mean_speed(lambda: ConstantLength(0), 0.0, extra, 256)
    assert mean_speed(adaptive, 0.0, extra, 256) >= 0.93 * plain
    assert mean_speed(lambda: experienced(0.0, extra), 0.0, extra, 256) >= 0.97 * plain


@pytest.mark.parametrize("extra", [0.05, 0.15, 0.4])
@pytest.mark.parametrize(
    # With a poor draft speculation hardly pays, so that times would have to be known to percents.
    ("acceptance", "share"),
    [(0.3, 0.85), (0.6, 0.87), (0.8, 0.93), (0.95, 0.91)],
)
def test_it_comes_near_the_best_constant_length(acceptance, share, extra):
    best = best_constant(acceptance, extra, 1000)
    assert mean_speed(adaptive, acceptance, extra, 1000) >= share * best


def run(policy, num_rounds, accepted, **costs):
    """Rounds without noise; their statistics."""
    prefill(policy)
    rounds, last_size = [], 100
    for _ in range(num_rounds):
        rounds.append(a_round(policy, accepted, last_size=last_size, **costs))
        last_size = rounds[-1].pass_tokens
    return rounds


def test_it_times_plain_decoding_then_a_draft_and_says_so():
    rounds = run(adaptive(), 8, lambda n: n)
    assert [r.planned for r in rounds[:7]] == [0, 0, 0, 4, 4, 4, 4]
    assert [r.reason for r in rounds[2:4]] == ["times plain decoding", "first try"]
    assert rounds[7].reason.startswith("pays: ")


def test_it_switches_off_where_a_candidate_costs_more_than_it_yields():
    rounds = run(adaptive(), 40, lambda n: min(n, 1), drafting=0.5, verifying=0.5)
    assert rounds[-1].planned == 0
    assert rounds[-1].reason == "does not pay"


def test_it_drafts_at_once_in_a_later_generation():
    learned = (CostModel(), DraftHistory())
    run(AdaptiveLength(("model",), *learned), 40, lambda n: n)
    assert AdaptiveLength(("model",), *learned).plan("model").length == MAX_LENGTH


def test_it_comes_back_when_the_draft_gets_good():
    learned = (CostModel(), DraftHistory())
    run(AdaptiveLength(("model",), *learned), 200, lambda n: 0)
    rounds = run(AdaptiveLength(("model",), *learned), 300, lambda n: n)
    tried = next(i for i, r in enumerate(rounds) if r.planned)
    assert rounds[tried].reason == "tries again"
    assert rounds[tried + 3].planned >= 4


def test_the_rounds_of_short_generations_add_up_to_the_next_try():
    learned = (CostModel(), DraftHistory())
    run(AdaptiveLength(("model",), *learned), 20, lambda n: 0)
    reasons = set()
    for _ in range(5):
        rounds = run(AdaptiveLength(("model",), *learned), 20, lambda n: n)
        reasons |= {r.reason for r in rounds}
    assert "tries again" in reasons
    assert rounds[-1].planned >= 4


def test_it_waits_longer_after_each_try_that_failed():
    rounds = run(adaptive(), 1000, lambda n: 0)
    tried = [i for i, r in enumerate(rounds) if r.planned and not rounds[i - 1].planned]
    waits = [after - before for before, after in itertools.pairwise(tried)]
    assert 60 < waits[0] < waits[1]


def test_tries_take_little_of_the_time():
    rounds = run(adaptive(), 2000, lambda n: 0, drafting=0.3, verifying=0.2)
    plain = 2000 * PLAIN
    assert sum(r.seconds for r in rounds) < 1.04 * plain


def test_it_times_plain_decoding_again_after_a_long_time():
    rounds = run(adaptive(), OLD + 40, lambda n: n)
    again = [i for i, r in enumerate(rounds) if r.reason == "times plain decoding"]
    assert len(again) == 6
    assert OLD < again[3] <= OLD + 16


def test_a_machine_that_slows_down_as_a_whole_changes_nothing():
    policy = adaptive()
    before = run(policy, 30, lambda n: min(n, 3))[-1].planned
    last = None
    for _ in range(60):
        last = a_round(policy, lambda n: min(n, 3), noise=2.0, last_size=before + 1)
    assert last.planned == before


def test_passes_keep_their_size_where_a_change_costs_more():
    policy = adaptive()
    run(policy, 20, lambda n: n, drafting=0.05, verifying=0.05)
    length = policy.plan("model").length
    assert policy.pass_size(length - 2) == length + 1
    assert policy.pass_size(length + 1) == length + 1


def test_passes_are_not_filled_up_where_that_costs_more():
    policy = adaptive()
    run(policy, 20, lambda n: n, drafting=0.05, verifying=0.7)
    length = policy.plan("model").length
    assert length > 0
    assert policy.pass_size(1) == 1


def test_drafts_end_early_where_that_spares_something():
    policy = adaptive()
    run(policy, 40, lambda n: n, drafting=0.05, verifying=0.3)
    plan = policy.plan("model")
    assert plan.length > 4
    assert not plan.ends_after([0.99])
    assert plan.ends_after([0.05])


def test_drafts_do_not_end_early_where_two_changes_of_size_cost_more():
    policy = adaptive()
    run(policy, 40, lambda n: n, drafting=0.05, verifying=0.08)  # spares less than 2 * CHANGE
    plan = policy.plan("model")
    assert plan.length > 1 + CHANGE / 0.08
    assert not plan.ends_after([0.05])


def test_a_match_is_taken_unless_the_model_promises_more():
    history = DraftHistory()
    policy = AdaptiveLength(("prompt-lookup", "model"), CostModel(), history)
    run(policy, 30, lambda n: min(n, 2))
    for _ in range(30):
        stats = RoundStats(4, 4, 5, 0.0, 1.0, 0.0, 1.0, 5, "prompt-lookup", confidences=(0.75,) * 4)
        history.acceptance("prompt-lookup", 0.75).learn(stats)
        stats = RoundStats(4, 0, 1, 0.0, 1.0, 0.0, 1.0, 5, "prompt-lookup", confidences=(0.5,) * 4)
        history.acceptance("prompt-lookup", 0.5).learn(stats)
    assert policy.plan("prompt-lookup", 0.75).length > 4
    poor = policy.plan("prompt-lookup", 0.5)
    assert (poor.length, poor.reason) == (0, "the model drafter promises more than the match")


def test_without_candidates_it_keeps_asking():
    policy = AdaptiveLength(("prompt-lookup",), CostModel(), DraftHistory())
    prefill(policy)
    for _ in range(20):  # no match
        policy.update(RoundStats(0, 0, 1, 0.0, PLAIN, 0.0, PLAIN, 1, "prompt-lookup"))
    assert policy.plan("prompt-lookup", 0.75).length > 0
