"""`Round`: the result of one round of a sequence."""

from typing import NamedTuple

from ov_specdec.logprobs import TokenLogprobs
from ov_specdec.stats import RoundStats


class Round(NamedTuple):
    """The tokens that one pass of the main model added to the sequence.

    tokens: the new tokens. num_from_draft: the number of accepted draft tokens, which come first;
    the token after them, if any, is the main model's own. draft_tokens: all draft tokens. logprobs:
    of each new token, if requested. prompt_logprobs: of each prompt token, in the first round.
    """

    tokens: list[int]
    num_from_draft: int
    draft_tokens: list[int]
    stats: RoundStats
    logprobs: list[TokenLogprobs]
    prompt_logprobs: list[TokenLogprobs]
