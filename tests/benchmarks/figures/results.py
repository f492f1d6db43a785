"""What tables and charts take from a file of figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

from tests.benchmarks.record import Record, Row, select
from tests.benchmarks.tables import numbers, ratios, to_best

FOLDER = Path(__file__).parents[3] / "docs" / "figures"


@dataclass(frozen=True)
class Results:
    """The figures of one processor, whose name is the file's."""

    name: str
    record: Record

    @classmethod
    def all(cls, folder: Path = FOLDER) -> "list[Results]":
        """Those of every processor, by name."""
        return [cls(file.stem, Record.read(file, "figures")) for file in sorted(folder.glob("*"))]

    @cached_property
    def parts(self) -> dict[str, list[Row]]:
        """Rows by part; what stopped at its first token has no speed, and is left out."""
        parts: dict[str, list[Row]] = {}
        for row in self.record.rows:
            if TIMED & row.keys():
                parts.setdefault(row["part"], []).append(row)
        return parts

    def rows(self, part: str, **values: object) -> list[Row]:
        """The rows of a part with these values."""
        return select(self.parts.get(part, []), **values)

    @property
    def stamp(self) -> str:
        """Processor, versions, date and commit."""
        machine, versions = self.record.machine, self.record.versions
        limit = machine["ONEDNN_MAX_CPU_ISA"]
        level = f"ONEDNN_MAX_CPU_ISA={limit}" if limit else widest(machine["instructions"] or [])
        programs = [f"{name} {versions[name]}" for name in SHOWN if versions.get(name)]
        code = f"commit {str(self.record.code['commit'])[:10]}"
        return (
            f"{machine['name']} ({level}), {machine['cores']} cores; {', '.join(programs)}; "
            f"measured on {self.record.date[:10]}, {code}"
        )

    def model(self, pair: str) -> str:
        """What a pair is called."""
        if pair == "embedded":
            return "embedded pair"
        return self.record.models.get(pair, {}).get("name", pair)


TIMED = {"speed", "kept", "ratio"}
"""Fields of which a row has one, unless it stopped at its first token."""

SHOWN = ("openvino", "openvino-genai", "transformers", "torch", "llama-cpp-python")
"""Packages whose versions are printed."""

WIDEST = ("amx", "avx512_bf16", "avx512_vnni", "avx512", "avx_vnni", "avx2", "i8mm", "sve", "asimd")
"""Beginnings of instructions' names, the widest first."""


def widest(instructions: Sequence[str]) -> str:
    """The most that a processor multiplies matrices with."""
    return next((name for name in WIDEST if any(i.startswith(name) for i in instructions)), "any")


def methods(rows: Sequence[Row], beginning: str = "") -> list[str]:
    """The methods of rows, in their order in the first turn that has them."""
    names = dict.fromkeys(row["method"] for row in rows if row["method"].startswith(beginning))
    return list(names)


def speedups(rows: Sequence[Row], method: str, base: str = "plain") -> list[float]:
    """The speed of a method over that of another, turn by turn."""
    return ratios(rows, method, base, "speed")


def best(rows: Sequence[Row], beginning: str) -> str | None:
    """The fastest of the methods that begin so, by its median; None without any."""
    names = methods(rows, beginning)
    return max(names, key=lambda m: median(numbers(select(rows, method=m), "speed")), default=None)


def over_best(rows: Sequence[Row], method: str, beginning: str) -> list[float]:
    """The speed of a method over that of the best of those that begin so: see `to_best`."""
    return to_best(rows, method, methods(rows, beginning))[0]
