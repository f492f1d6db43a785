"""The benchmark's prompts, and prompts from a file."""

import inspect
import json
from collections.abc import Sequence
from pathlib import Path

from ov_specdec.errors import OptionError
from ov_specdec.tokenizer import Tokenizer

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

_PIECES = (
    "def load_settings(path, defaults=None):\n"
    "    settings = dict(defaults or {})\n"
    "    with open(path, encoding='utf-8') as file:\n"
    "        for line in file:\n"
    "            name, _, value = line.partition('=')\n"
    "            settings[name.strip()] = value.strip()\n"
    "    return settings\n",
    "class Interval:\n"
    "    def __init__(self, start, end):\n"
    "        if end < start:\n"
    "            raise ValueError('end must not be before start')\n"
    "        self.start = start\n"
    "        self.end = end\n\n"
    "    def overlaps(self, other):\n"
    "        return self.start < other.end and other.start < self.end\n",
    "MONTHS = {\n"
    "    'january': 31,\n    'february': 28,\n    'march': 31,\n    'april': 30,\n"
    "    'may': 31,\n    'june': 30,\n    'july': 31,\n    'august': 31,\n}\n",
    "def connect(host, port, timeout=10.0):\n"
    "    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)\n"
    "    sock.settimeout(timeout)\n"
    "    try:\n"
    "        sock.connect((host, port))\n"
    "    except OSError:\n"
    "        sock.close()\n"
    "        raise\n"
    "    return sock\n",
)
QUOTING = tuple(f"{piece}\n\n{piece}\n\n{piece[: piece.index(chr(10)) + 1]}" for piece in _PIECES)
"""Code that stands twice and begins a third time: the output quotes the prompt."""

PROMPT_SETS = {"code": CODE, "quoting": QUOTING}


JSON_LINES = (".jsonl", ".json")


def read_prompts(file: Path) -> tuple[str, ...]:
    """The prompts in a file, one per line; a .jsonl file has objects with "prompt" as lines."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
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
    encode = tokenizer.encode_chat if tokenizer.chat_template else tokenizer.encode
    encoded = [encode(prompt) for prompt in prompts]
    if context is None:
        return encoded
    filler = tokenizer.encode(_filler())
    return [_fill(ids, filler, context) for ids in encoded]


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
