"""Verification of greedy draft tokens: a case of speculative sampling that involves no chance."""

import numpy as np
import pytest

from ov_specdec import LogitsError
from ov_specdec.sampling.samplers import GreedySampler
from ov_specdec.sampling.verification import Draft, VerificationResult, verify


def one_hot(choices, vocab_size=9):
    return np.eye(vocab_size, dtype=np.float32)[choices]


@pytest.mark.parametrize(
    ("choices", "draft_tokens", "expected"),
    [
        ([4], [], VerificationResult(0, 4)),
        ([4, 5, 6], [4, 5], VerificationResult(2, 6)),
        ([4, 5, 6], [4, 7], VerificationResult(1, 5)),
        ([4, 5, 6], [3, 5], VerificationResult(0, 4)),
    ],
)
def test_draft_tokens_are_accepted_up_to_the_first_that_greedy_decoding_would_not_choose(
    choices, draft_tokens, expected
):
    assert verify(GreedySampler(), [1], one_hot(choices), Draft(draft_tokens)) == expected


def test_ties_go_to_the_lowest_id():
    row = np.array([0.0, 2.0, 2.0, 1.0], np.float32)
    assert verify(GreedySampler(), [1], row[None], Draft([])).next_token == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("draft_tokens", [[], [4]])
def test_a_row_that_gives_no_distribution_is_refused(bad, draft_tokens):
    logits = one_hot([4] * (len(draft_tokens) + 1))
    logits[-1, :] = -np.inf
    logits[-1, 3] = bad
    with pytest.raises(LogitsError):
        verify(GreedySampler(), [1], logits, Draft(draft_tokens))
