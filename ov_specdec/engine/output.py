"""`Round`: what a round of a sequence gives."""

from typing import NamedTuple

from ov_specdec.logprobs import TokenLogprobs
from ov_specdec.stats import RoundStats


class Round(NamedTuple):
    """What one pass of the main model added to the sequence.

    tokens: the new tokens. num_from_draft: how many of them, from the first, are accepted draft
    tokens; the one after those, if any, is the main model's own. draft_tokens: all that were
    drafted. logprobs: of each of the tokens, where they are wanted. prompt_logprobs: of each token
    of the prompt, in the first round.
    """

    tokens: list[int]
    num_from_draft: int
    draft_tokens: list[int]
    stats: RoundStats
    logprobs: list[TokenLogprobs]
    prompt_logprobs: list[TokenLogprobs]
