"""The prompts of measurements, and prompts from a file."""

import json
from pathlib import Path

from ov_specdec.errors import OptionError
from ov_specdec.files import read_text

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
"""Python code to continue, as in the training data of the embedded pair."""

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
    ("class Door:\n", "    def close(self):\n        return self._close()\n\n"),
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
"""Code with a block that the embedded main model keeps repeating, so that its output quotes the
prompt: it is too small to quote on request."""

TUNING = (
    "def read_json(path):\n",
    "class Queue:\n    def __init__(self):\n",
    "Explain the difference between a list and a tuple.",
    "Write this function again, with type hints and a docstring:\n\n"
    "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
    "    return total / len(values)\n",
)
"""Prompts for a pair of any kind: code, a question, and a text to quote."""

PROMPT_SETS = {"code": CODE, "quoting": QUOTING}

JSON_LINES = (".jsonl", ".json")


def read_prompts(file: Path) -> tuple[str, ...]:
    """The prompts in a file, one per line; a .jsonl file has objects with "prompt" as lines."""
    try:
        lines = [line for line in read_text(file).split("\n") if line.strip()]
        if file.suffix in JSON_LINES:
            lines = [str(json.loads(line)["prompt"]) for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--prompt-file '{file}' cannot be read as text: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        problem = f'each line must be a JSON object with "prompt" ({error})'
        raise OptionError(f"--prompt-file '{file}': {problem}") from error
    if not lines:
        raise OptionError(f"--prompt-file '{file}' holds no prompt: write one per line")
    return tuple(lines)
