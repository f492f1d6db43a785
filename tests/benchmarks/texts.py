"""What models are given to read: tasks of a file, and a text that is long enough."""

import argparse
import inspect
import json
from collections import defaultdict
from pathlib import Path

from ov_specdec.bench.prompts import PROMPT_SETS


def read_tasks(name: str) -> list[tuple[str, str]]:
    """Tasks and prompts, of a set of the benchmark or of a file; the tasks of a file in turns."""
    if name in PROMPT_SETS:
        return [(name, prompt) for prompt in PROMPT_SETS[name]]
    by_task = defaultdict(list)
    for line in Path(name).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        by_task[row.get("task", Path(name).stem)].append(row["prompt"])
    longest = max(map(len, by_task.values()))
    return [
        (task, prompts[i])
        for i in range(longest)
        for task, prompts in by_task.items()
        if i < len(prompts)
    ]


def long_text() -> str:
    """English and Python: the source of the standard library's `argparse`."""
    return inspect.getsource(argparse)
