"""The benchmark's prompts, and prompts from a file."""

import inspect
import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

from ov_specdec.errors import OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.text.tokenizer import Tokenizer

CODE = (
    'def fibonacci(n):\n    """',
    "import argparse\nimport sys\n\n\ndef main():\n    parser = argparse.ArgumentParser(",
    "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(",
    "def read_json(path):\n    with open(path",
    "class Point:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n\n    def ",
    "def quicksort(xs):\n    if len(xs) <= 1:\n        return xs\n",
    "import os\n\n\ndef find_files(folder, suffix):\n    for ",
    "def test_split():\n    assert split('a,b') == ['a', 'b']\n    ",
)
"""Beginnings of Python code, as the embedded pair was trained to continue."""

_LOOPS = (
    (
        "class Vector:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n",
        "    def __eq__(self, other):\n        return self._compare(other)\n\n",
    ),
    (
        "class Server:\n    @property\n",
        "    def name(self):\n        return self._name\n\n    @property\n",
    ),
    (
        "class Client:\n",
        "    def get(self, path):\n        return self.request(path)\n\n"
        "    def post(self, path):\n        return self.request(path)\n\n",
    ),
    (
        "class Door:\n",
        "    def close(self):\n        return self._close()\n\n",
    ),
    (
        'def mean(values):\n    """\n    Parameters\n    ----------\n    x : array_like\n',
        "        The array of shape (n_samples,)\n",
    ),
    (
        "def handle(self, request):\n    ",
        "    def read(self, request: Request) -> None:\n"
        '        """\n        Return the request is a request.\n        """\n'
        "        return self.headers\n\n",
    ),
)
QUOTING = tuple(head + 4 * block for head, block in _LOOPS)
"""Code with a block that the embedded main goes on repeating: its output quotes the prompt. It is
too small to quote on request, so these are blocks that it repeats by itself."""

MIX_TOKENS = (30, 900)
"""Lengths of mixed prompts: from a question to a file."""

MIX_SIZE = 32
"""How many there are: those of a load of 8 requests at a time whose arrivals are spread."""

PROMPT_SETS = {"code": CODE, "quoting": QUOTING}

JSON_LINES = (".jsonl", ".json")


def read_prompts(file: Path) -> tuple[str, ...]:
    """The prompts in a file, one per line; a .jsonl file has objects with "prompt" as lines."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--prompt-file '{file}' cannot be read as text: {error}") from error
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise OptionError(f"--prompt-file '{file}' holds no prompt: write one per line")
    if file.suffix not in JSON_LINES:
        return tuple(lines)
    try:
        return tuple(str(json.loads(line)["prompt"]) for line in lines)
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(
            f"--prompt-file '{file}': each line must be a JSON object with \"prompt\" ({error})"
        ) from error


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
    random.Random(0).shuffle(lengths)  # noqa: S311 - no secret
    filler = tokenizer.encode(_filler())
    encoded = [_encode(tokenizer, prompt) for prompt in prompts]
    turns = itertools.islice(itertools.cycle(encoded), MIX_SIZE)
    return [
        _fill(ids, filler, max(length, len(ids)))
        for ids, length in zip(turns, lengths, strict=True)
    ]


def _encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    if tokenizer.chat_template is None:
        return tokenizer.encode(prompt)
    message = {"role": "user", "content": prompt}
    text = tokenizer.render_chat([message], GenerationOptions())
    return tokenizer.encode_rendered(text).ids


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
