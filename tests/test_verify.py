import numpy as np
import pytest

from ov_specdec.verify import Verdict, greedy, verify_greedy


def one_hot(choices, vocab_size=9):
    return np.eye(vocab_size, dtype=np.float32)[choices]


@pytest.mark.parametrize(
    ("choices", "candidates", "expected"),
    [
        ([4], [], Verdict(0, 4)),
        ([4, 5, 6], [4, 5], Verdict(2, 6)),
        ([4, 5, 6], [4, 7], Verdict(1, 5)),
        ([4, 5, 6], [3, 5], Verdict(0, 4)),
    ],
)
def test_candidates_stand_up_to_the_first_that_greedy_decoding_would_not_choose(
    choices, candidates, expected
):
    assert verify_greedy(one_hot(choices), candidates) == expected


def test_ties_go_to_the_lowest_id_in_both_loops():
    row = np.array([0.0, 2.0, 2.0, 1.0], np.float32)
    assert greedy(row) == 1
    assert verify_greedy(row[None], []).next_token == 1
