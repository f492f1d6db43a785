"""`python -m lab.families [FAMILY...]`: tries families, and compares with docs/models.json.

Each is exported with the version of transformers that Optimum wants, as `ov-specdec export
--transformers` does it, and run on both KV caches. Results are kept in --output,
so that a run that was interrupted, or whose --minutes were over, is gone on with. With --write the
table in docs/models.md is made anew; without, the exit code is 1 where a result has changed.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from lab.families.make import ERROR
from lab.families.verdict import Verdict, judge
from ov_specdec.models.export import python_with
from tests.support.families import SETTINGS

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "models.json"
PAGE = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"

AT_ONCE = 6
"""Families that one process makes: most of its time goes into imports."""

WANTED_VERSION = re.compile(r"(?:Maximum|Minimum) required is (\S+), got")
UNKNOWN = "Unrecognized model identifier"
NO_EXPORT = "custom or unsupported architecture"


def main() -> int:
    """Try families; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.families")
    parser.add_argument("families", nargs="*", default=list(SETTINGS))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "families")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    record = given.output / "models.json"
    found = read(record)
    for verdict in try_out([f for f in given.families if f not in found], given.output, until):
        found[verdict.family] = verdict
        record.write_text(as_json(found))
        print(verdict, flush=True)  # noqa: T201
    if given.write:
        KEPT.write_text(as_json(read(KEPT) | found))
        write_table()
        return 0
    kept = read(KEPT)
    both = kept.keys() & found.keys()
    changed = [family for family in sorted(both) if found[family].outline != kept[family].outline]
    for family in changed:
        print(f"CHANGED {kept[family]} -> {found[family]}")  # noqa: T201
    return 1 if changed else 0


def read(file: Path) -> dict[str, Verdict]:
    """Verdicts by family; none where there is no file."""
    rows = json.loads(file.read_text()) if file.is_file() else []
    return {row["family"]: Verdict(**row) for row in rows}


def as_json(found: dict[str, Verdict]) -> str:
    """Verdicts in the order of their families."""
    return json.dumps([asdict(found[family]) for family in sorted(found)], indent=1) + "\n"


def try_out(families: Sequence[str], output: Path, until: float) -> Iterator[Verdict]:
    """Verdicts as they come; what an earlier run has learnt of versions is in the folders."""
    installed = version("transformers")
    waiting, tried = list(families), set[tuple[str, str]]()
    while waiting and time.monotonic() < until:
        wanted = {family: _wanted(output / family) or installed for family in waiting}
        used = wanted[waiting[0]]
        some = [family for family in waiting if wanted[family] == used][:AT_ONCE]
        waiting = [family for family in waiting if family not in some]
        python = python_with(None if used == installed else used)
        command = [*python, "-m", "lab.families.make", str(output), *some]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=900)
        for family in some:
            other = _wanted(output / family)
            tried.add((family, used))
            if other and (family, other) not in tried:
                waiting.append(family)
            elif error := _error(output / family):
                yield Verdict(family, _used(used), reason=_explain(error, used, installed))
            else:
                yield judge(family, _used(used), output / family)


def _wanted(folder: Path) -> str | None:
    """The version of transformers that Optimum has asked for; None where it has not."""
    found = WANTED_VERSION.search(_error(folder))
    return found and found[1]


def _error(folder: Path) -> str:
    """What went wrong; "" where nothing did."""
    if (folder / ERROR).is_file():
        return (folder / ERROR).read_text()
    return "" if (folder / "expected.json").is_file() else "the process ended"


def _used(wanted: str) -> str:
    """A version, to its second number."""
    return ".".join(wanted.split(".")[:2])


def _explain(error: str, used: str, installed: str) -> str:
    """Why there is no export with the version that was used."""
    if NO_EXPORT in error:
        return "Optimum has no export"
    if used != installed and UNKNOWN in error:
        return f"Optimum wants transformers {_used(used)}, which does not know the family"
    return " ".join(error.split())[:160]


def write_table() -> None:
    """Make the table of docs/models.md anew."""
    lines = ["| family | transformers | paged | stateful |", "|---|---|---|---|"]
    for row in read(KEPT).values():
        if row.reason:
            lines.append(f"| {row.family} | {row.transformers} | {row.reason} | |")
        else:
            cells = [each.replace("|", "\\|") for each in (row.paged, row.stateful)]
            lines.append(f"| {row.family} | {row.transformers} | {cells[0]} | {cells[1]} |")
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    sys.exit(main())
