"""What one request and all of them may take: slots of the queue, and tokens."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ov_specdec.openai.answer import Ask
from ov_specdec.openai.errors import ApiError, invalid

RETRY_AFTER = 1
"""Retry-After in seconds while the queue is full: about the time of an answer."""


class Slots:
    """Bounds the generations that run or wait; more are rejected with 429.

    A key that has none gets a slot for a request even if all are taken, so no key shuts out others.
    Not thread-safe: for the event loop only.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: Counter[str | None] = Counter()

    @contextmanager
    def entered(self, key: str | None) -> Iterator[Callable[[int, int], None]]:
        """Take a slot before a request is read; yields a function that takes one for each choice.

        It is called with the number of choices, and of those of each prompt. key: of the client.
        Raises `ApiError` if there are not so many slots.
        """
        size = 0

        def grow(wanted: int, n: int = 1) -> None:
            nonlocal size
            if wanted > self.most:
                param, what = ("n", "choices") if n > 1 else ("prompt", "prompts")
                room = f"the {self.most} slots of the queue"
                raise invalid(param, f"{wanted} {what} exceed {room}: send fewer")
            num_taken = self.taken.total()
            if num_taken + wanted - size > self.most and self.taken[key] > size:
                raise ApiError(
                    429,
                    f"{num_taken} requests are running or waiting: try again later",
                    code="queue_full",
                    retry_after=RETRY_AFTER,
                )
            self.taken[key] += wanted - size
            size = wanted

        grow(1)
        try:
            yield grow
        finally:
            self.taken[key] -= size


def limit_work(ask: Ask, lengths: Sequence[int], context: int, most: int) -> Ask:
    """A request with its output length limited; `ApiError` if it asks for more than `most` tokens.

    For every choice, its prompt, maximum output and top log-probabilities count. A request without
    an output length gets what fits. lengths: of its prompts. context: tokens of prompt and output.
    """
    options = ask.options
    read = ask.n * sum(lengths) * (1 + (options.prompt_logprobs or 0))
    each = 1 + (options.logprobs or 0)
    room = [max(context - length, 1) for length in lengths]
    wanted = options.max_new_tokens
    if wanted is None:
        fits = (most - read) // (each * ask.num_choices)
        if fits >= max(room):
            return ask
        if fits >= 1:
            return replace(ask, options=options.model_copy(update={"max_new_tokens": fits}))
        wanted = 1
    asked = read + each * ask.n * sum(min(wanted, there) for there in room)
    if asked > most:
        raise invalid(
            None,
            f"the {ask.num_choices} choices of the request have up to {asked} tokens together, "
            f"prompts and top log-probabilities included, over max_request_tokens={most}: ask for "
            "fewer choices, shorter ones, or fewer log-probabilities",
            "too_many_tokens",
        )
    return ask
