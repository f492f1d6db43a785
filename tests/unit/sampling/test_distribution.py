"""Distributions, what is left of one beside another, and drawing from them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ov_specdec.sampling.distribution import Distribution, RandomDecisions, residual

VOCAB = 6


class FixedGenerator(np.random.Generator):
    """Gives the same number each time."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self._value = value

    def random(self) -> float:  # type: ignore[override]
        return self._value


def dense(distribution: Distribution) -> NDArray[np.float64]:
    return np.array([distribution.prob(token) for token in range(VOCAB)])


def make(weights: list[int], *, sparse: bool) -> Distribution:
    probs = np.array(weights) / sum(weights)
    if not sparse:
        return Distribution(None, probs)
    ids = np.flatnonzero(probs)
    return Distribution(ids, probs[ids])


weights_of_tokens = st.lists(
    st.sampled_from([0, 0, 0, 1, 2, 5]), min_size=VOCAB, max_size=VOCAB
).filter(any)


@example(
    main_weights=[0, 1, 0, 0, 2, 3],
    draft_weights=[1, 2, 2, 0, 0, 0],
    main_sparse=True,
    draft_sparse=True,
)
@given(
    main_weights=weights_of_tokens,
    draft_weights=weights_of_tokens,
    main_sparse=st.booleans(),
    draft_sparse=st.booleans(),
)
def test_residual_is_the_normalized_positive_part(
    main_weights: list[int], draft_weights: list[int], main_sparse: bool, draft_sparse: bool
) -> None:
    main = make(main_weights, sparse=main_sparse)
    draft = make(draft_weights, sparse=draft_sparse)
    left = residual(main, draft)
    excess = np.maximum(dense(main) - dense(draft), 0.0)
    expected = excess / excess.sum() if excess.any() else dense(main)
    assert dense(left) == pytest.approx(expected, abs=1e-15)
    assert left.probs.sum() == pytest.approx(1.0, abs=1e-12)


def test_residual_is_valid_where_next_to_nothing_is_left() -> None:
    main = Distribution(None, np.array([0.5, 0.5 + 2**-53, 5e-324]))
    draft = Distribution(None, np.array([0.5, 0.5 + 2**-53, 0.0]))
    assert residual(main, draft).probs.tolist() == [0.0, 0.0, 1.0]
    assert residual(main, main) is main


@pytest.mark.parametrize(
    ("value", "token"), [(0.0, 1), (0.24, 1), (0.25, 4), (1 - 2**-53, 4), (0.9, 4)]
)
def test_a_draw_inverts_the_cumulative_sums(value: float, token: int) -> None:
    """Also at both ends, where tokens have probability 0."""
    random = RandomDecisions(FixedGenerator(value))
    probs = np.array([0.0, 0.25, 0.0, 0.0, 0.75, 0.0])
    assert random.draw(Distribution(None, probs)) == token
    assert random.draw(Distribution(np.arange(VOCAB), probs)) == token


@given(st.integers(1, 2000), st.integers(0, 99))
def test_a_draw_stays_inside_when_sums_end_off_1(size: int, seed: int) -> None:
    weights = np.random.default_rng(seed).random(size)
    distribution = Distribution(None, np.append(weights / weights.sum() * (1 - 1e-13), 0.0))
    assert RandomDecisions(FixedGenerator(1 - 2**-53)).draw(distribution) < size


def test_acceptance_is_certain_at_0_and_1_and_fair_between() -> None:
    assert RandomDecisions(FixedGenerator(1 - 2**-53)).accept(1.0)
    assert not RandomDecisions(FixedGenerator(0.0)).accept(0.0)
    random = RandomDecisions(np.random.default_rng(6))
    share = sum(random.accept(0.3) for _ in range(20_000)) / 20_000
    assert share == pytest.approx(0.3, abs=0.015)
