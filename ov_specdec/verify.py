"""Which candidates stand: pure functions on the main model's logits."""

from collections.abc import Sequence
from dataclasses import dataclass

from ov_specdec.session import Logits


@dataclass(frozen=True)
class Verdict:
    """The first `num_accepted` candidates stand, and `next_token` follows them.

    next_token: the main model's own choice: the correction of the first candidate that does not
    stand, or the bonus token where all of them do.
    """

    num_accepted: int
    next_token: int


def greedy(row: Logits) -> int:
    """The most likely token of one row of logits [vocab]; the lowest id of those that tie."""
    return int(row.argmax())


def verify_greedy(logits: Logits, candidates: Sequence[int]) -> Verdict:
    """Accept candidates for as long as each is what greedy decoding would have chosen.

    logits: [len(candidates) + 1, vocab]; row i scores the token in the place of candidate i, and
    the last row the one after all of them. Source: Leviathan et al., section 2 (arXiv 2211.17192),
    in the limit of temperature 0.
    """
    choices = logits.argmax(axis=-1).tolist()
    num_accepted = 0
    while num_accepted < len(candidates) and candidates[num_accepted] == choices[num_accepted]:
        num_accepted += 1
    return Verdict(num_accepted, choices[num_accepted])
