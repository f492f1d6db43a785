"""Prompts as token ids, of the lengths that are asked for."""

import inspect
import itertools
import random
from collections.abc import Sequence

from ov_specdec.errors import OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import encode_prompt
from ov_specdec.text.tokenizer import Tokenizer

MIX_TOKENS = (30, 900)
"""Lengths of mixed prompts: from a question to a file."""

MIX_SIZE = 32
"""How many there are: those of a load of 8 requests at a time whose arrivals are spread."""


def encode_prompts(
    tokenizer: Tokenizer, prompts: Sequence[str], context: int | None
) -> list[list[int]]:
    """Token ids of each prompt; in the chat template where the tokenizer has one.

    context: tokens that each is filled up to from the left, by Python code of the package click.
    `OptionError` for a prompt that is longer already.
    """
    encoded = [_encode(tokenizer, prompt) for prompt in prompts]
    if context is None:
        return encoded
    filler = tokenizer.encode(_filler())
    return [_fill(ids, filler, context) for ids in encoded]


def mixed_prompts(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of `MIX_SIZE` prompts of all lengths in `MIX_TOKENS`, in an order of no system.

    The prompts come one after the other, and from the first again; each is filled up as
    `encode_prompts` does.
    """
    shortest, longest = MIX_TOKENS
    lengths = [shortest + (longest - shortest) * i // (MIX_SIZE - 1) for i in range(MIX_SIZE)]
    random.Random(0).shuffle(lengths)
    filler = tokenizer.encode(_filler())
    encoded = [_encode(tokenizer, prompt) for prompt in prompts]
    turns = itertools.islice(itertools.cycle(encoded), MIX_SIZE)
    return [
        _fill(ids, filler, max(length, len(ids)))
        for ids, length in zip(turns, lengths, strict=True)
    ]


def _encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    return encode_prompt(prompt, GenerationOptions(), tokenizer, GeneratedTokens())


def require_room(prompts: Sequence[Sequence[int]], max_new_tokens: int, room: int) -> None:
    """Refuse prompts that `room` tokens, the model's context, do not hold with the output."""
    longest = max(len(ids) for ids in prompts)
    if longest + max_new_tokens > room:
        raise OptionError(
            f"a prompt of {longest} tokens and {max_new_tokens} new ones are more than the model's "
            f"context of {room}: lower --max-new-tokens or --context"
        )


def _fill(ids: list[int], filler: list[int], context: int) -> list[int]:
    missing = context - len(ids)
    if not 0 <= missing <= len(filler):
        raise OptionError(
            f"--context {context} must be from {len(ids)}, the tokens of a prompt, to "
            f"{len(ids) + len(filler)}"
        )
    return [*filler[len(filler) - missing :], *ids]


def _filler() -> str:
    """A long text that every installation has, and that the embedded pair was not trained on."""
    import click.core
    import click.formatting
    import click.types

    modules = (click.core, click.types, click.formatting)
    return "\n\n\n".join(inspect.getsource(module) for module in modules)
