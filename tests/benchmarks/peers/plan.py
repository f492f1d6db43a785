"""How much a benchmark measures: the whole of it, or a quick look."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """The extent of a benchmark, each part of which an option can change.

    num_prompts: how many of the prompts are used, from the first; None for all.
    """

    num_prompts: int | None
    rounds: int
    max_new_tokens: int


FULL = Plan(num_prompts=None, rounds=5, max_new_tokens=128)
QUICK = Plan(num_prompts=2, rounds=2, max_new_tokens=32)
