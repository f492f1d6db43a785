"""Warping: against the warpers of transformers, and at the edges of what numbers can be."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers.generation import logits_process as reference

from ov_specdec.errors import LogitsError
from ov_specdec.runner.base import Logits
from ov_specdec.sampling.distribution import Distribution
from ov_specdec.sampling.warpers import LogitsWarper

SEEDS = range(2)
LARGE = 150_000

WARPERS = {
    "nothing": LogitsWarper(),
    "temperature": LogitsWarper(temperature=0.7),
    "high temperature": LogitsWarper(temperature=1.5),
    "top_k": LogitsWarper(top_k=5),
    "top_k of 1": LogitsWarper(top_k=1),
    "top_k of 0": LogitsWarper(top_k=0),
    "top_k of -1": LogitsWarper(top_k=-1),
    "top_k beyond the vocabulary": LogitsWarper(top_k=10**6),
    "top_p": LogitsWarper(top_p=0.9),
    "low top_p": LogitsWarper(top_p=0.1),
    "top_p of 0": LogitsWarper(top_p=0.0),
    "min_p": LogitsWarper(min_p=0.05),
    "min_p of 1": LogitsWarper(min_p=1.0),
    "typical_p": LogitsWarper(typical_p=0.9),
    "low typical_p": LogitsWarper(typical_p=0.2),
    "top_k and top_p": LogitsWarper(temperature=0.8, top_k=50, top_p=0.9),
    "top_p and min_p": LogitsWarper(temperature=1.3, top_p=0.95, min_p=0.02),
    "top_p and typical_p": LogitsWarper(top_p=0.9, typical_p=0.5),
    "all": LogitsWarper(temperature=1.5, top_k=40, top_p=0.95, min_p=0.01, typical_p=0.8),
}


def by_transformers(warper: LogitsWarper, logits: Logits) -> NDArray[np.float64]:
    """The same options through the warpers of transformers, in the order that it has them."""
    warpers: list[reference.LogitsProcessor] = [
        reference.TemperatureLogitsWarper(warper.temperature)
    ]
    if warper.top_k and warper.top_k > 0:
        warpers.append(reference.TopKLogitsWarper(warper.top_k))
    warpers.append(reference.TopPLogitsWarper(warper.top_p))
    warpers.append(reference.MinPLogitsWarper(warper.min_p))
    if warper.typical_p < 1.0:
        warpers.append(reference.TypicalLogitsWarper(warper.typical_p))
    scores = torch.from_numpy(logits.astype(np.float64))[None]
    for warper in warpers:
        scores = warper(torch.zeros((1, 1), dtype=torch.long), scores)
    probs: NDArray[np.float64] = scores.softmax(dim=-1)[0].numpy()
    return probs


def dense(distribution: Distribution, vocab: int) -> NDArray[np.float64]:
    if distribution.ids is None:
        return distribution.probs
    probs = np.zeros(vocab)
    probs[distribution.ids] = distribution.probs
    return probs


def assert_valid(distribution: Distribution, logits: Logits) -> None:
    """No NaN, nothing negative, sum 1, ids ascending, nothing on what is forbidden."""
    assert distribution.probs.dtype == np.float64
    assert (distribution.probs >= 0.0).all()
    assert abs(math.fsum(distribution.probs) - 1.0) <= 1e-12
    if distribution.ids is not None:
        assert len(distribution.ids) == len(distribution.probs)
        assert (np.diff(distribution.ids) > 0).all()
        assert 0 <= distribution.ids[0] <= distribution.ids[-1] < len(logits)
    assert dense(distribution, len(logits))[logits == -np.inf].sum() == 0.0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [0.5, 3.0, 12.0])
@pytest.mark.parametrize("name", WARPERS)
def test_random_logits(name: str, scale: float, seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    logits = rng.normal(0, scale, 300).astype(np.float32)
    logits[rng.integers(0, 300, 30)] = -np.inf
    distribution = WARPERS[name](logits)
    assert_valid(distribution, logits)
    expected = by_transformers(WARPERS[name], logits)
    np.testing.assert_allclose(dense(distribution, 300), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("scale", [0.1, 3.0])
@pytest.mark.parametrize("name", ["nothing", "top_k and top_p", "low top_p", "typical_p", "all"])
def test_a_vocabulary_of_150_000(name: str, scale: float) -> None:
    logits = np.random.default_rng(9).normal(0, scale, LARGE).astype(np.float32)
    distribution = WARPERS[name](logits)
    assert_valid(distribution, logits)
    expected = by_transformers(WARPERS[name], logits)
    # Of tokens that tie, transformers keeps any: what each has is compared by its rank.
    result = np.sort(dense(distribution, LARGE))
    np.testing.assert_allclose(result, np.sort(expected), rtol=0, atol=1e-5)
    assert np.count_nonzero(result) == np.count_nonzero(expected)


def test_top_k_keeps_what_ties_with_the_last() -> None:
    logits = np.array([1, 2, 3, 2, 0, 2], dtype=np.float32)
    ids = LogitsWarper(top_k=2)(logits).ids
    assert ids is not None
    assert ids.tolist() == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.0, [2]), (0.4, [2]), (0.6, [1, 2]), (0.72, [1, 2, 3]), (0.89, [1, 2, 3])]
)
def test_top_p_keeps_the_lowest_ids_of_those_that_tie(top_p: float, kept: list[int]) -> None:
    probs = np.array([0.05, 0.2, 0.5, 0.2, 0.05])
    ids = LogitsWarper(top_p=top_p)(np.log(probs).astype(np.float32)).ids
    assert ids is not None
    assert ids.tolist() == kept


values = st.one_of(
    st.just(-math.inf),
    st.sampled_from([0.0, 1.0, -1.0, 3.4e38, -3.4e38]),
    st.floats(-1e4, 1e4, width=32),
    st.floats(-5, 5, width=32),
)
rows = (
    st.lists(values, min_size=1, max_size=40)
    .filter(lambda row: max(row) > -math.inf)
    .map(lambda row: np.array(row, dtype=np.float32))
)
warpers = st.builds(
    LogitsWarper,
    temperature=st.one_of(
        st.sampled_from([1e-4, 1.0, 100.0, 5e-324, 1e308]), st.floats(1e-4, 100.0)
    ),
    top_k=st.one_of(st.none(), st.integers(0, 60)),
    top_p=st.one_of(st.sampled_from([0.0, 1.0, 5e-324, 1 - 2**-53]), st.floats(0.0, 1.0)),
    min_p=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0)),
    typical_p=st.one_of(st.sampled_from([1.0, 5e-324, 1 - 2**-53]), st.floats(1e-9, 1.0)),
)


@settings(max_examples=200)
@given(rows, warpers)
def test_any_row_and_any_options_give_a_valid_distribution(
    logits: Logits, warper: LogitsWarper
) -> None:
    before = logits.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        distribution = warper(logits)
    assert_valid(distribution, logits)
    assert np.array_equal(logits, before)


@settings(max_examples=100)
@given(rows)
def test_limits_are_greedy(logits: Logits) -> None:
    """A top_p of 0 is greedy, and a top_k of 1 leaves what ties with the greedy choice."""
    top = LogitsWarper(top_p=0.0)(logits)
    assert len(top.probs) == 1
    # Logits that differ by less than float32 can tell from 1 in their exponentials tie.
    assert logits.max() - logits[top.token(0)] < 1e-6
    top = LogitsWarper(top_k=1)(logits)
    assert top.probs == pytest.approx(1 / np.count_nonzero(logits == logits.max()))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_a_number_is_refused(bad: float) -> None:
    logits = np.array([0.0, bad, -1.0], dtype=np.float32)
    with pytest.raises(LogitsError, match=str(bad)):
        LogitsWarper(top_k=1)(logits)


def test_a_row_in_which_all_is_forbidden_is_refused() -> None:
    with pytest.raises(LogitsError, match="all logits are -inf"):
        LogitsWarper()(np.full(4, -np.inf, dtype=np.float32))
