"""What models are given to read: prompts by their task, and a text that is long enough."""

import argparse
import hashlib
import inspect
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import cycle, zip_longest
from pathlib import Path

import click

from ov_specdec import GenerationOptions
from ov_specdec.measure.prompts import JSON_LINES, PROMPT_SETS, read_prompts
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import encode_prompt
from ov_specdec.text.tokenizer import Tokenizer
from tests.support.prompts import PROMPTS

MIXED = "mixed"
SETS = {**PROMPT_SETS, "tests": PROMPTS, MIXED: PROMPT_SETS["code"]}
"""Prompts of Python code; those that are mixed are filled up from the left."""

FILES = {
    name: Path(__file__).parent / "prompts" / f"{name}.jsonl"
    for name in ("heldout", "tasks", "code_chat", "agent_turns")
}
"""Sets in files: code that the embedded pair was not trained on; six tasks, and code, for chat
models; and turns of agents."""

MIX = tuple(range(30, 901, 30))
"""Tokens of mixed prompts: from a question to a file."""


@dataclass(frozen=True)
class Prompts:
    """Prompts, each with its task; `name` is that of their set or file."""

    name: str
    tasks: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, name: str, number: int | None = None) -> "Prompts":
        """A set or a file, whose tasks take turns. number: so many, from all over it."""
        if name in SETS:
            tasks = [(name, prompt) for prompt in SETS[name]]
        else:
            tasks = _file(FILES.get(name, Path(name)))
        number = min(number or len(tasks), len(tasks))
        chosen = (round(i * (len(tasks) - 1) / max(number - 1, 1)) for i in range(number))
        return cls(name, tuple(tasks[place] for place in chosen))

    def ids(self, tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
        """Task and token ids of each, in the chat template of a model that has one."""
        options = GenerationOptions()
        encoded = [
            (task, encode_prompt(prompt, options, tokenizer, GeneratedTokens(), sys.maxsize))
            for task, prompt in self.tasks
        ]
        if self.name != MIXED:
            return encoded
        filler = tokenizer.encode(long_text())
        turns = zip(MIX, cycle(encoded), strict=False)
        return [(task, [*filler[: max(size - len(ids), 0)], *ids]) for size, (task, ids) in turns]

    @property
    def digest(self) -> str:
        """A hash that tells them from others."""
        return hashlib.sha256(json.dumps(self.tasks).encode()).hexdigest()[:12]


def _file(file: Path) -> list[tuple[str, str]]:
    texts, by_task = read_prompts(file), defaultdict(list)
    lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    for text, line in zip(texts, lines, strict=True):
        task = json.loads(line).get("task") if file.suffix in JSON_LINES else None
        by_task[task or file.stem].append(text)
    turns = zip_longest(*([(task, text) for text in own] for task, own in by_task.items()))
    return [each for turn in turns for each in turn if each is not None]


def long_text() -> str:
    """English and Python: the source of the standard library's `argparse`."""
    return inspect.getsource(argparse)


def heldout_text() -> str:
    """The same of a package that the embedded pair was not trained on."""
    return inspect.getsource(click.core)
