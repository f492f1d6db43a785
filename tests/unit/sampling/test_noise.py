"""The noise of seeded draws: golden values, the law of the draw, and its randomness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from ov_specdec.sampling import noise
from ov_specdec.sampling.distribution import Distribution
from ov_specdec.sampling.noise import Noise, uniform
from tests.support.enumeration import best_by_definition

# The first numbers of SplitMix64 from 1234567 on, as other implementations publish them, for
# example https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64.
SPLITMIX = [
    *(6457827717110365317, 3203168211198807973, 9817491932198370423),
    *(4593380528125082431, 16408922859458223821),
]
NUM_DRAWS = 4000
PROBS = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
GOLDEN = [1, 2, 0, 1, 0, 1, 0, 4, 1, 0, 2, 0, 0, 0, 3, 3, 2, 1, 0, 2]
PLACES = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (2**64 - 1, 0, 0), (2**64, 0, 0)]


def whole(probs=PROBS):
    return Distribution(None, probs)


def drawn(seed, choice, position, probs=PROBS):
    return Noise(seed, choice).draw(whole(probs), position)[0]


def test_numbers_are_those_of_splitmix():
    expected = [((number >> 12) + 0.5) / 2**52 for number in SPLITMIX]
    assert uniform(1234567, np.arange(5)).tolist() == expected
    assert uniform(1234567, np.array([4, 1])).tolist() == [expected[4], expected[1]]


def test_a_seed_keeps_its_meaning():
    # These are what the versions before drew. Where they change, all texts with a seed do.
    even = np.full(1000, 0.001)
    assert [drawn(*place, even) for place in PLACES] == [364, 784, 106, 731, 693, 124]
    assert [drawn(7, 0, position) for position in range(20)] == GOLDEN


def unmixed(bits):
    """What SplitMix64 makes these 64 bits of: its steps undone, from the last one on."""
    for shift, factor in ((31, noise.MIX_2), (27, noise.MIX_1), (30, 1)):
        start = bits
        for _ in range(64 // shift):
            bits = start ^ (bits >> shift)
        bits = bits * pow(factor, -1, 2**64) % 2**64
    return bits


@pytest.mark.parametrize(
    ("bits", "expected"), [(0, 2.0**-53), (2**64 - 1, 1 - 2.0**-53), (SPLITMIX[0], None)]
)
def test_the_least_and_the_greatest_number_are_between_0_and_1(bits, expected):
    key = (unmixed(bits) - noise.GAMMA) % 2**64
    [number] = uniform(key, np.array([0]))
    assert number == (((bits >> 12) + 0.5) / 2**52 if expected is None else expected)
    assert 0.0 < -np.log1p(-number) < np.inf


def test_seed_choice_and_position_are_not_mixed_up():
    places = [(a, b, c) for a in (1, 2, 11, 12) for b in (1, 2, 11, 12) for c in (1, 2, 11, 12)]
    assert len({Noise(seed, choice)._key(position) for seed, choice, position in places}) == 64


@given(
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 5),
    position=st.integers(0, 10**6),
    size=st.integers(1, 300),
    spread=st.floats(0.0, 30.0),
    run=st.sampled_from([1, 7, 64, noise.NOISE_RUN]),
    is_sparse=st.booleans(),
)
def test_the_draw_is_the_greatest_log_probability_plus_gumbel_noise(
    seed, choice, position, size, spread, run, is_sparse
):
    generator = np.random.default_rng([seed, size])
    weights = np.exp(generator.normal(0, spread, size)) * (generator.random(size) < 0.8)
    weights[generator.integers(size)] = 1.0
    ids = np.sort(generator.choice(10 * size, size, replace=False)) if is_sparse else None
    distribution = Distribution(ids, weights / weights.sum())
    expected, scores = best_by_definition(distribution, seed, choice, position)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "NOISE_RUN", run)
        token, confidence = Noise(seed, choice).draw(distribution, position)
    assert token == expected
    assert distribution.prob(token) > 0
    share_of_scores = 1.0 / np.exp(scores - scores.max()).sum()
    assert 0.0 < confidence <= share_of_scores * (1 + 1e-9)


@pytest.mark.parametrize(
    "neighbour",
    [
        lambda i: ((i, 0, 5), (i, 1, 5)),
        lambda i: ((i, 0, 5), (i, 0, 6)),
        lambda i: ((i, 0, 5), (i + 1, 0, 5)),
        lambda i: ((i, 1, 5), (i + 1, 0, 5)),
        lambda i: ((7, 0, i), (7, 1, i)),
    ],
    ids=["choices", "positions", "seeds", "choice of a seed and the next seed", "two texts"],
)
def test_draws_at_neighbouring_places_are_independent(neighbour):
    counts = np.zeros((5, 5))
    for i in range(NUM_DRAWS):
        one, other = neighbour(i)
        counts[drawn(*one), drawn(*other)] += 1
    assert chi2_contingency(counts).pvalue > 0.001
