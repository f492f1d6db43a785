"""Records that are kept, one file for each group of runs, and where others differ from them."""

import json
from collections.abc import Mapping, Sequence
from difflib import ndiff
from itertools import zip_longest
from pathlib import Path

from tests.traces.recorder import Record

FOLDER = Path(__file__).parent / "golden"


def read(group: str) -> dict[str, list[Record]]:
    """The kept records of a group, by run; none where nothing is kept yet."""
    runs: dict[str, list[Record]] = {}
    path = FOLDER / f"{group}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for record in map(json.loads, lines[1:]):  # after what they guard
        if "run" in record:
            steps = runs[record["run"]] = []
        else:
            steps.append(record)
    return runs


def write(group: str, guards: str, runs: Mapping[str, Sequence[Record]]) -> None:
    """Keep a group: what it guards, then a line for each run's name, and one for each step."""
    lines = [{"guards": guards}]
    lines += [line for name, records in runs.items() for line in ({"run": name}, *records)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{group}.jsonl").write_text(text, encoding="utf-8")


def difference(kept: Sequence[Record], now: Sequence[Record]) -> str:
    """The first step in which records differ, in lines for a person; "" where none does."""
    for number, (old, new) in enumerate(zip_longest(kept, now)):
        if old is None or new is None:
            return f"{len(kept)} records were kept, now {len(now)}"
        if old != new:
            was, now_is = (json.dumps(record, indent=1).splitlines() for record in (old, new))
            found = "\n".join(ndiff(was, now_is))
            return f"record {number} of {len(kept)}, {old.get('do', 'step')}:\n{found}"
    return ""
