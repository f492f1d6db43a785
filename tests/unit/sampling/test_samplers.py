"""One sampler for plain decoding, drafting and verification: each row gets its own history."""

import numpy as np
import pytest

from ov_specdec import LogitsError
from ov_specdec.sampling.distribution import RandomDecisions
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.sampling.verification import Draft, VerificationResult, verify

TOKENS = [7, 8]


class Recorder:
    """A processor that notes the histories it is given, and changes nothing."""

    def __init__(self):
        self.histories = []

    def __call__(self, tokens, logits):
        self.histories.append(list(tokens))
        return logits


def rows(*choices):
    """Logits that make the choices certain."""
    return 50.0 * np.eye(10, dtype=np.float32)[list(choices)]


def make(kind, recorder):
    if kind == "greedy":
        return Sampler((recorder,))
    return Sampler((recorder,), rng=RandomDecisions(np.random.default_rng(0)))


@pytest.mark.parametrize("kind", ["greedy", "sampling"])
def test_rows_after_a_rejection_are_not_processed(kind):
    recorder = Recorder()
    result = verify(make(kind, recorder), TOKENS, rows(1, 2, 3, 4), Draft([1, 5, 3]))
    assert result == VerificationResult(1, 2)
    assert recorder.histories == [[7, 8], [7, 8, 1]]


def test_ties_go_to_the_lowest_id():
    row = np.array([0.0, 2.0, 2.0, 1.0], np.float32)
    assert verify(Sampler(), [1], row[None], Draft([])).next_token == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("draft_tokens", [[], [4]])
def test_a_row_that_gives_no_distribution_is_refused(bad, draft_tokens):
    logits = rows(*[4] * (len(draft_tokens) + 1))
    logits[-1, :] = -np.inf
    logits[-1, 3] = bad
    with pytest.raises(LogitsError):
        verify(Sampler(), [1], logits, Draft(draft_tokens))
