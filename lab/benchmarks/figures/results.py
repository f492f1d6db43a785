"""What tables and charts take from a file of figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from statistics import geometric_mean, median

from lab.benchmarks.peers.methods import split
from lab.benchmarks.record import LIMIT, Record, Row, select

FOLDER = Path(__file__).parents[3] / "docs" / "figures"

NOISY = 0.05
"""Scatter of plain decoding beyond which figures are warned of."""

PAIRS = {
    "real": "real pair",
    "real-int4": "real pair, main model in int4",
    "1b": "1 B, draft of 100 M",
    "1b-int4": "1 B in int4, draft of 100 M",
    "3b": "3 B, draft of 100 M",
    "1b-small-draft": "1 B, embedded draft",
    "chat": "SmolLM2-135M, suffix drafts",
    "embedded": "embedded pair",
}
"""What pairs are called, those first that are nearest to what people have."""

SINGLE = {
    **{pair: pair for pair in ("real", "real-int4", "1b", "1b-int4", "3b", "1b-small-draft")},
    **{"chat": "tasks", "embedded": "embedded"},
}
"""The parts with single requests, by pair."""


CONTROL = ("1b", "1b-small-draft")
"""Parts with the same main model, in processes of their own: where memory lies differs."""


@dataclass(frozen=True)
class Results:
    """The figures of one column, whose name is the file's."""

    name: str
    record: Record

    @classmethod
    def all(cls, folder: Path = FOLDER) -> "list[Results]":
        """Those of every column, by name, the ones with wider instructions first."""
        files = sorted(folder.glob("*.json"), key=lambda file: file.stem, reverse=True)
        return [cls(file.stem, Record.read(file)) for file in files]

    @cached_property
    def parts(self) -> dict[str, list[Row]]:
        """Rows by part."""
        parts: dict[str, list[Row]] = {}
        for row in self.record.rows:
            parts.setdefault(row["part"], []).append(row)
        return parts

    def rows(self, part: str, **values: object) -> list[Row]:
        """The rows of a part with these values."""
        return select(self.parts.get(part, []), **values)

    @property
    def stamp(self) -> str:
        """With what all was measured, when, and a digest of it."""
        digest = sha256(repr(self.record.rows).encode()).hexdigest()[:8]
        return f"{self.equipment}; {self.measured([*self.parts])}; rows {digest}"

    def measured(self, parts: Sequence[str]) -> str:
        """The dates and commits of parts."""
        codes = [self.record.code[part] for part in parts if part in self.parts]
        days = sorted(code["date"][:10] for code in codes)
        commits = ", ".join(dict.fromkeys(str(code["commit"])[:10] for code in codes))
        return f"measured on {' to '.join(dict.fromkeys((days[0], days[-1])))}, commit {commits}"

    @property
    def equipment(self) -> str:
        """Processor and its settings, and versions."""
        machine, versions = self.record.machine, self.record.versions
        given = self.record.options.get("properties", {})
        settings = [f"{LIMIT}={machine[LIMIT]}"] if machine[LIMIT] else []
        settings += [f"{name}={value}" for name, value in given.items()]
        settings.append(f"priority: {machine.get('priority', 'usual')}")
        programs = [f"{name} {versions[name]}" for name in SHOWN if versions.get(name)]
        return (
            f"{machine['name']} ({widest(machine['instructions'] or [])}), {machine['cores']} "
            f"cores, {', '.join(settings)}; {', '.join(programs)}"
        )


SHOWN = ("openvino", "openvino-genai")
"""Packages whose versions are printed."""

WIDEST = ("amx", "avx512_bf16", "avx512_vnni", "avx512", "avx_vnni", "avx2", "i8mm", "sve", "asimd")
"""Beginnings of instructions' names, the widest first."""


def widest(instructions: Sequence[str]) -> str:
    """The most that a processor multiplies matrices with."""
    return next((name for name in WIDEST if any(i.startswith(name) for i in instructions)), "any")


def methods(rows: Sequence[Row], beginning: str = "") -> list[str]:
    """The methods of rows, by family and length; without those that repeat plain decoding."""
    named = [row for row in rows if not row.get("method", "-again").endswith("-again")]
    names = {row["method"] for row in named if row["method"].startswith(beginning)}
    order = list(dict.fromkeys(split(row["method"])[0] for row in named))
    return sorted(names, key=lambda name: (order.index(split(name)[0]), split(name)[1] or 0))


def by_prompt(rows: Sequence[Row], name: str = "speed") -> dict[object, float]:
    """A figure by prompt: the median of its turns, so that n counts prompts."""
    own: dict[object, list[float]] = {}
    for row in rows:
        if row.get(name) is not None:
            own.setdefault(row.get("prompt"), []).append(row[name])
    return {prompt: median(values) for prompt, values in own.items()}


def singles(results: Results, **values: object) -> dict[str, list[Row]]:
    """Single requests with these values by what they are called: a pair, and a form of prompts."""
    found = {}
    for pair, part in SINGLE.items():
        rows = results.rows(part, **values)
        for form in dict.fromkeys(row.get("form") for row in rows):
            found[f"{PAIRS[pair]}, {form}" if form else PAIRS[pair]] = select(rows, form=form)
    return found


def merged(orders: Iterable[Iterable[str]]) -> list[str]:
    """The names of several lists once each: before and after the same ones as in their own list."""
    names: list[str] = []
    for order in orders:
        place = 0
        for name in order:
            if name not in names:
                names.insert(place, name)
            place = names.index(name) + 1
    return names


def speeds(rows: Sequence[Row], method: str, name: str = "speed") -> list[float]:
    """A figure of a method by prompt."""
    return list(by_prompt(select(rows, method=method), name).values())


def speedups(
    rows: Sequence[Row], method: str, base: str = "plain", name: str = "speed"
) -> list[float]:
    """The speed of a method over that of another in the same turn, by prompt likewise."""
    of_base = {row["turn"]: row[name] for row in select(rows, method=base)}
    ratios = [
        {**row, "ratio": row[name] / of_base[row["turn"]]}
        for row in select(rows, method=method)
        if of_base.get(row["turn"])
    ]
    return list(by_prompt(ratios, "ratio").values())


def plain_of(rows: Sequence[Row], results: Results) -> dict[object, float]:
    """Speeds of openvino.genai's plain decoding by prompt, in the faster of two processes.

    Where memory lies makes one slower than another: see `CONTROL`.
    """
    others = [results.rows(part, heat=0.0) for part in CONTROL if rows[0]["part"] in CONTROL]
    found = [by_prompt(select(own, method="genai-plain")) for own in (rows, *others)]
    return max(filter(None, found), key=lambda speeds: median(speeds.values()), default={})


def best(rows: Sequence[Row], beginning: str, name: str = "speed") -> str | None:
    """The fastest of the methods that begin so on all prompts together; None without any.

    By the geometric mean, to which all prompts count: the median of a few is one of them.
    """
    found = {each: speeds(rows, each, name) for each in methods(rows, beginning)}
    names = (each for each in found if found[each])
    return max(names, key=lambda each: geometric_mean(found[each]), default=None)


def over_best(rows: Sequence[Row], method: str, beginning: str, name: str = "speed") -> list[float]:
    """The speed of a method over that of the best of those that begin so, by prompt."""
    chosen = best(rows, beginning, name)
    return [] if chosen is None else speedups(rows, method, chosen, name)


def rising(rows: Sequence[Row], beginning: str = "", name: str = "speed") -> str:
    """The method at which a sweep of draft lengths ends while rising; "" where none does.

    A longer one may be faster still, and the best of them is unknown.
    """
    lengths = (split(each)[0] for each in methods(rows, beginning) if split(each)[1])
    for family in dict.fromkeys(lengths):
        names = methods(rows, f"{family}-")
        if len(names) > 1 and best(rows, f"{family}-", name) == names[-1]:
            return names[-1]
    return ""


def scatter(rows: Sequence[Row], plain: str = "plain") -> list[float]:
    """How much plain decoding differs from itself in each turn."""
    again = {row["turn"]: row["speed"] for row in select(rows, method=f"{plain}-again")}
    return [
        abs(again[row["turn"]] / row["speed"] - 1)
        for row in select(rows, method=plain)
        if row["turn"] in again and row["speed"]
    ]


def differing(rows: Sequence[Row]) -> tuple[int, int]:
    """Greedy texts of the default that are not plain decoding's in the same turn; of how many."""
    pairs = []
    for group in cells(rows).values():
        plain = {row["turn"]: row.get("text") for row in select(group, method="plain")}
        own = (row for row in select(group, method="default") if "text" in row)
        pairs += [(row["text"], plain[row["turn"]]) for row in own if plain.get(row["turn"])]
    return sum(one != other for one, other in pairs), len(pairs)


def cells(rows: Sequence[Row]) -> dict[tuple[object, ...], list[Row]]:
    """Rows by what they are compared with: see `COMPARED`."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in COMPARED), []).append(row)
    return groups


COMPARED = ("part", "pair", "heat", "cached", "requests", "form", "shapes")
"""Fields that are the same in rows of one comparison."""


def count(rows: Sequence[Row]) -> int:
    """How many different prompts there were."""
    return len({row.get("prompt") for row in rows})
