"""The adaptive draft length, on simulated machines and drafts."""

import numpy as np
import pytest

from ov_specdec.adaptive import MAX_LENGTH, AdaptiveLength
from ov_specdec.policy import ConstantLength
from ov_specdec.stats import RoundStats

PLAIN = 1.0
"""Seconds of a pass of the main model over one token; other times are multiples of it."""

CHANGE = 0.8
"""Seconds that a round takes longer if its length is not that of the last one."""


def simulate(policy, acceptance, extra, num_tokens, *, seed=0, noise=0.05):
    """Tokens per second over a generation; candidates stand with the given probability.

    extra: seconds that a candidate adds. noise: relative deviation of every round's time; one
    round in twenty takes three times as long, as it happens on a busy machine.
    """
    generator = np.random.default_rng(seed)
    tokens, seconds = 1, 0.0
    policy.update(RoundStats(0, 0, 1, 0.0, 0.0, 0.0, 30 * PLAIN))  # the prefill
    is_first_draft, last_length = True, 0
    while tokens < num_tokens:
        length = policy.num_draft_tokens
        stood = next((i for i in range(length) if generator.random() >= acceptance), length)
        time = PLAIN + length * extra + (CHANGE if length != last_length else 0.0)
        last_length = length
        if length and is_first_draft:
            time += 5 * extra  # the draft model reads the prompt
            is_first_draft = False
        time *= generator.normal(1.0, noise) * (3.0 if generator.random() < 0.05 else 1.0)
        tokens += stood + 1
        seconds += time
        policy.update(RoundStats(length, stood, stood + 1, 0.0, 0.0, 0.0, time))
    return tokens / seconds


def mean_speed(make_policy, acceptance, extra, num_tokens, *, runs=10):
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
    plain = mean_speed(lambda: ConstantLength(0), 0.0, extra, 256, runs=60)
    assert mean_speed(AdaptiveLength, 0.0, extra, 256, runs=60) >= 0.9 * plain


@pytest.mark.parametrize("extra", [0.05, 0.15, 0.4])
@pytest.mark.parametrize(
    # With a poor draft speculation hardly pays, so that times would have to be known to percents.
    ("acceptance", "share"),
    [(0.3, 0.9), (0.6, 0.93), (0.8, 0.93), (0.95, 0.93)],
)
def test_it_comes_near_the_best_constant_length(acceptance, share, extra):
    best = best_constant(acceptance, extra, 1000)
    assert mean_speed(AdaptiveLength, acceptance, extra, 1000) >= share * best


def test_it_switches_off_where_a_candidate_costs_more_than_it_yields():
    policy = AdaptiveLength()
    simulate(policy, 0.5, 0.9, 300, noise=0.0)
    assert policy.num_draft_tokens == 0


def test_it_comes_back_when_the_draft_gets_good():
    policy = AdaptiveLength()
    simulate(policy, 0.0, 0.15, 200)
    simulate(policy, 0.95, 0.15, 3000, seed=1)
    assert policy.num_draft_tokens >= 4


def test_it_believes_the_time_that_drafting_takes_whatever_plain_decoding_seemed_to_take():
    policy = AdaptiveLength()
    for _ in range(4):  # something else slowed the machine down while plain decoding was timed
        policy.update(RoundStats(0, 0, 1, 0.0, 9 * PLAIN, 0.0, 9 * PLAIN))
    for _ in range(30):
        length = policy.num_draft_tokens
        drafting = length * 0.5 * PLAIN
        policy.update(RoundStats(length, 0, 1, drafting, PLAIN, 0.0, PLAIN + drafting))
    assert policy.num_draft_tokens <= 1


def test_without_candidates_it_keeps_asking():
    policy = AdaptiveLength()
    for _ in range(20):  # prompt lookup without a match
        policy.update(RoundStats(0, 0, 1, 0.0, 0.0, 0.0, PLAIN))
    assert policy.num_draft_tokens > 0
