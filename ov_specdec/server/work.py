"""Limits the work of one request."""

from collections.abc import Sequence
from dataclasses import replace

from ov_specdec.openai import ApiError, Ask
from ov_specdec.openai.errors import invalid


def reject_oversized(ask: Ask, context: int, most: int) -> None:
    """Raise the error of `limit_work` for a request that exceeds the limit with any prompts.

    So it takes no places in the queue.
    """
    asked = ask.num_choices * min(ask.options.get("max_new_tokens") or 1, context)
    if asked > most:
        raise _too_much(ask, asked, most)


def limit_work(ask: Ask, prompts: Sequence[Sequence[int]], context: int, most: int) -> Ask:
    """A request with its output length limited; `ApiError` if it asks for more than `most` tokens.

    For every choice, its prompt, maximum output and top log-probabilities count. A request without
    an output length gets what fits. prompts: the ids of each. context: tokens of prompt and output.
    """
    lengths = [len(ids) for ids in prompts]
    named = ask.options.get("prompt_logprobs") or 0
    read = ask.n * sum(lengths) * (1 + named)
    each = 1 + (ask.options.get("logprobs") or 0)
    wanted = ask.options.get("max_new_tokens")
    room = [max(context - length, 1) for length in lengths]
    if wanted is None:
        fits = (most - read) // (each * ask.num_choices)
        if fits >= max(room):
            return ask
        if fits >= 1:
            return replace(ask, options={**ask.options, "max_new_tokens": fits})
        wanted = 1
    asked = read + each * ask.n * sum(min(wanted, there) for there in room)
    if asked > most:
        raise _too_much(ask, asked, most)
    return ask


def _too_much(ask: Ask, asked: int, most: int) -> ApiError:
    return invalid(
        None,
        f"the {ask.num_choices} choices of the request have up to {asked} tokens together, "
        f"prompts and top log-probabilities included, over max_request_tokens={most}: ask for "
        "fewer choices, shorter ones, or fewer log-probabilities",
        "too_many_tokens",
    )
