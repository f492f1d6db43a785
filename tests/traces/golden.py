"""Records that are kept, one file for each group of runs, and where others differ from them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.traces.recorder import Record

FOLDER = Path(__file__).parent / "golden"


def read(group: str) -> dict[str, list[Record]]:
    """The kept records of a group, by run; none where nothing is kept yet."""
    runs: dict[str, list[Record]] = {}
    path = FOLDER / f"{group}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for record in map(json.loads, lines):
        if "run" in record:
            steps = runs[record["run"]] = []
        else:
            steps.append(record)
    return runs


def write(group: str, runs: Mapping[str, Sequence[Record]]) -> None:
    """Keep the records of a group: a line for each run's name, and one for each of its steps."""
    lines = [line for name, records in runs.items() for line in ({"run": name}, *records)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{group}.jsonl").write_text(text, encoding="utf-8")


def difference(kept: Sequence[Record], now: Sequence[Record]) -> str:
    """The first step in which records differ, in lines for a person; "" where none does."""
    for number, (old, new) in enumerate(zip_longest(kept, now)):
        if old == new:
            continue
        if old is None or new is None:
            return f"{len(kept)} records were kept, now {len(now)}"
        lines = [f"record {number} of {len(kept)}, {old.get('do', 'step')}:"]
        names = dict.fromkeys([*old, *new])
        for name in names:
            lines += _differing(name, old.get(name), new.get(name))
        return "\n".join(lines)
    return ""


def _differing(name: str, old: Any, new: Any) -> Iterator[str]:
    """What differs in one field, by its lines; what stays the same is given once, for context."""
    before, after = list(_lines(old)), list(_lines(new))
    if before == after:
        return
    yield f"  {name}"
    for was, now in zip_longest(before, after):
        if was == now:
            yield f"      {was}"
            continue
        if was is not None:
            yield f"    - {was}"
        if now is not None:
            yield f"    + {now}"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from (f"{name}: {line}" for line in _lines(part))
    elif isinstance(value, list):
        yield from map(str, value)
    elif value is not None:
        yield str(value)
