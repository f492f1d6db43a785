"""Figures in pages: what stands between `<!-- figures: NAME -->` and `<!-- end -->`.

NAME is a key of `TABLES`, "conditions", or that of a chart after `chart-`. A table has the columns
of docs/figures side by side. `python -m lab.docs` writes the blocks anew, from the files: it
measures nothing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lab.benchmarks.charts import CHARTS, IMAGES
from lab.benchmarks.figures.parts import PARTS, PROMPTS
from lab.benchmarks.figures.results import (
    CONTROL,
    NOISY,
    PAIRS,
    SINGLE,
    Results,
    best,
    by_prompt,
    cells,
    count,
    differing,
    merged,
    over_best,
    rising,
    scatter,
    singles,
    speeds,
    speedups,
)
from lab.benchmarks.figures.structured import CLIENTS, FREE, HOSTILE, MOST, SPACED, TOGETHER
from lab.benchmarks.peers.genai import MAX_NGRAM_SIZE
from lab.benchmarks.peers.methods import label
from lab.benchmarks.record import Row, select
from lab.benchmarks.tables import LEAST, in_quartiles, markdown

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "models" / "README.md"]
BLOCK = re.compile(r"(<!-- figures: ([\w-]+) -->\n)(?:.*?\n)??(<!-- end -->)", re.S)
NONE = "*Not measured with this version.*\n\n"

MODELS = {
    "chat": "--chat SMOLLM2",
    "speech": "--speech WHISPER",
    "real": "--real-main MAIN --real-draft DRAFT",
    "real-int4": "--real-int4 INT4",
}
"""Options of a command that measures parts, by what they need."""

SEVERAL = {pair: f"several-{pair}" for pair in ("real", "1b", "chat")}
LONG = {pair: (f"long-{pair}", f"longest-{pair}") for pair in ("real", "chat")}
SCHEMAS = {"real": "structured-real", "chat": "structured"}
CALLS = {"real": "tools-real", "chat": "tools"}
"""The parts with several requests, long prompts, schemas and calls, by pair."""

GENAI = "openvino.genai's best"
PROMISE = "`batch_invariant=False`"

Line = tuple[str, Sequence[str]]
"""The name of a line of a table, and its cells."""


@dataclass(frozen=True)
class Table:
    """A table. parts: that it is of. heads: of its cells, which each column of figures has."""

    parts: Sequence[str]
    heads: Sequence[str]
    lines: Callable[[Results], Iterable[Line]]


def filled(page: str, results: Sequence[Results]) -> str:
    """A page with its figures as they are now. `KeyError` for a name that does not exist."""

    def block(found: re.Match[str]) -> str:
        head, name, end = found.groups()
        if (chart := name.removeprefix("chart-")) != name:
            return f"{head}{picture(chart)}{end}"
        text = conditions(results) if name == "conditions" else show(TABLES[name], results)
        return f"{head}\n{text or NONE}{end}"

    return BLOCK.sub(block, page)


def picture(name: str) -> str:
    """A chart for a page of docs, where it was drawn."""
    file = IMAGES / f"{name}.svg"
    return f"\n![{CHARTS[name][0]}](images/{file.name})\n\n" if file.exists() else ""


def show(table: Table, results: Sequence[Results]) -> str:
    """A table with its caption; empty where nothing was measured."""
    found = {
        each.name: {name: cells for name, cells in table.lines(each) if any(cells)}
        for each in results
        if any(part in each.parts for part in table.parts)
    }
    names = merged(found.values())
    if not names:
        return ""
    columns = []
    for place, head in enumerate(table.heads):
        for column, lines in found.items():
            own = [lines[name][place] if name in lines else "" for name in names]
            if any(own):
                columns.append([f"{head}, `{column}`".removeprefix(", "), *own])
    body = markdown(zip(["", *names], *columns, strict=True), "---:")
    return f"{body}\n\n*{about(table.parts, results)}*\n\n"


def about(parts: Sequence[str], results: Sequence[Results]) -> str:
    """Prompts and outputs, n, and the command that measures a table."""
    parts = [part for part in parts if any(part in each.parts for each in results)]
    rows = [row for each in results for part in parts for row in each.rows(part)]
    by_about: dict[str, list[str]] = {}
    for part in parts:
        by_about.setdefault(PARTS[part].about, []).append(part)
    is_one = len(by_about) == 1
    facts = [f"{'' if is_one else ', '.join(own) + ': '}{said}" for said, own in by_about.items()]
    groups = (g for each in results for part in parts for g in cells(each.rows(part)).values())
    sizes = sorted({count(group) for group in groups if "prompt" in group[0]} or {1})
    facts.append(f"n = {' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))}")
    if any(str(row.get("method")).startswith("genai-prompt-lookup") for row in rows):
        facts.append(f"prompt lookup with max_ngram_size={MAX_NGRAM_SIZE} only")
    facts += cut_off(rows)
    needs = {PARTS[part].needs for part in parts} | {row.get("pair") for row in rows}
    models = "".join(f" {option}" for need, option in MODELS.items() if need in needs)
    command = f"python -m lab.benchmarks figures COLUMN --only {','.join(parts)}{models}"
    return f"{'; '.join(facts)}. `{command}`"


def cut_off(rows: Sequence[Row]) -> list[str]:
    """How many answers under a schema did not end, and whose they are."""
    answers = [row for row in rows if row["part"] in SCHEMAS.values() and row.get("passes")]
    answers = [row for row in answers if not row["form"].startswith(FREE)]
    counts = Counter(label(row["method"]) for row in answers if row["tokens"] == MOST)
    whose = ", ".join(f"{number} by {method}" for method, number in counts.items())
    said = f"{counts.total()} of {len(answers)} answers were cut off, and count as what they took"
    return [f"{said} ({whose})"] if counts else []


def conditions(results: Sequence[Results]) -> str:
    """What is the same for all tables: processors, versions, dates, prompts, and scatter."""
    lines = [line for each in results for line in of_column(each)]
    lines += [f"- {name}: {said}" for name, said in PROMPTS.items()]
    lines.append(f"- cells: medians, with quartiles in brackets where n is at least {LEAST}")
    return "\n".join(lines) + "\n\n"


def of_column(results: Results) -> Iterator[str]:
    """Equipment, date and commits of a column, its scatter, and texts that differ."""
    name, rows = results.name, [row for row in results.record.rows if "turn" in row]
    yield f"- `{name}`: {results.equipment}; {results.measured([*results.parts])}"
    models = {role: model["name"] for role, model in results.record.models.items()}
    if real := [found for role, found in models.items() if role.startswith("real ")]:
        yield f"- `{name}`, real pair: {', '.join(real)}"
    for method, said in {"plain": "plain decoding", "genai-plain": "openvino.genai's"}.items():
        if found := [noise for group in cells(rows).values() if (noise := scatter(group, method))]:
            most, middle = max(map(max, found)), max(map(median, found))
            noisy = ", **which is much**" if middle > NOISY else ""
            differ = (
                f"by at most {middle:.0%} in the median of a cell{noisy}, and by {most:.0%} once"
            )
            yield f"- `{name}`: {said} and its repetition differ {differ}"
    wrong, of = differing(rows)
    if of:
        said = "greedy texts that were timed and are not those of plain decoding"
        yield f"- `{name}`, default: {wrong} of {of:,} {said}"
    if all(found := [speeds(results.rows(part, heat=0.0), "genai-plain") for part in CONTROL]):
        one, other = (f"{median(values):.0f}" for values in found)
        said = "openvino.genai's plain decoding of the same model of 1 B in two processes"
        yield f"- `{name}`, a control: {said}, {one} and {other} tokens/s"


def spread(values: Iterable[float], form: str = ".2f") -> str:
    """The median, and the quartiles; empty without values."""
    found = list(values)
    return in_quartiles(found, form) if found else ""


def to_best(rows: Sequence[Row], method: str, beginning: str, name: str = "speed") -> str:
    """A method over the best of those that begin so; a bound where the longest draft is best."""
    found = spread(over_best(rows, method, beginning, name))
    return f"at most {found}" if found and rising(rows, beginning, name) else found


def of_defaults(results: Results) -> Iterator[Line]:
    """Default options against plain decoding and the best of openvino.genai, greedily."""
    for name, rows in singles(results, heat=0.0).items():
        chosen = label(best(rows, "genai") or "").partition(", ")[2]
        at_best = to_best(rows, "default", "genai")
        yield (
            name,
            (
                spread(speedups(rows, "default")),
                f"{at_best}: {chosen}" if at_best else "",
                *(spread(speedups(rows, drafter)) for drafter in ("suffix", "model")),
                to_best(rows, "default", "constant"),
            ),
        )


def of_several(results: Results) -> Iterator[Line]:
    """Requests and cached tokens down: default against itself without the promise, and peers."""
    for pair, part in SEVERAL.items():
        rows = results.rows(part)
        for cached, requests in sorted({(row["cached"], row["requests"]) for row in rows}):
            own = select(rows, cached=cached, requests=requests)
            yield (
                f"{PAIRS[pair]}: {requests} requests, {cached:,} cached",
                (
                    spread(speeds(own, "default"), ".0f"),
                    spread(speedups(own, "default")),
                    spread(speedups(own, "default", "default-not-invariant")),
                    to_best(own, "default", "genai"),
                ),
            )


def of_long(results: Results) -> Iterator[Line]:
    """First tokens of long prompts, and the speed after them."""
    for pair, parts in LONG.items():
        rows = [row for part in parts for row in results.rows(part)]
        for cached in sorted({row["cached"] for row in rows}):
            own = [{**row, "after": after_first(row)} for row in select(rows, cached=cached)]
            firsts = (speeds(own, method, "first") for method in ("plain", "genai-plain"))
            yield (
                f"{PAIRS[pair]}: {cached:,} tokens",
                (
                    *(spread(found, ".1f") for found in firsts),
                    spread(speeds(own, "plain", "after"), ".1f"),
                    spread(speedups(own, "default", "plain", "after")),
                    to_best(own, "default", "genai", "after"),
                ),
            )


def after_first(row: Row) -> float:
    """Tokens per second after the first one."""
    return float((row["tokens"] - 1) / (row["tokens"] / row["speed"] - row["first"]))


def of_structured(results: Results) -> Iterator[Line]:
    """Schemas down: what drafts gain under a grammar, and what the grammar costs without them."""
    for pair, part in SCHEMAS.items():
        rows = results.rows(part)
        single = [row["form"] for row in rows if "method" in row and row["form"] != TOGETHER]
        for kind in dict.fromkeys(form for form in single if not form.startswith(FREE)):
            own = select(rows, form=kind)
            own = [{**row, "answers": row["speed"] / row["tokens"]} for row in own]
            plain = by_prompt(select(own, method="plain"))
            free = by_prompt(select(rows, form=f"{FREE}, {kind}"))
            yield (
                f"{PAIRS[pair]}: {kind}",
                (
                    spread(speedups(own, "default")),
                    to_best(own, SPACED, "genai", "answers"),
                    spread(plain[prompt] / free[prompt] for prompt in plain.keys() & free.keys()),
                ),
            )


def of_others(results: Results) -> Iterator[Line]:
    """What takes a line each: calls, questions asked again, busy and fresh processes, passes."""
    for name, values in ratios(results):
        yield name, (spread(values),)


def ratios(results: Results) -> Iterator[tuple[str, Iterable[float]]]:
    """Those lines, with a ratio for each prompt."""
    for pair, part in CALLS.items():
        calls = results.rows(part, form="calls")
        edits = select(calls, task="edits")
        yield f"calls that edit, {PAIRS[pair]}: default / plain", speedups(edits, "default")
        others = [row for row in calls if row["task"] != "edits"]
        yield f"other calls, {PAIRS[pair]}: default / plain", speedups(others, "default")
    edits = results.rows("tools", form=CURVE)
    yield f"recorded edits, simulated, {CURVE}: default / plain", speedups(edits, "default")
    together, hostile = (results.rows("structured", form=form) for form in (TOGETHER, HOSTILE))
    yield f"{TOGETHER}: default / plain", speedups(together, "default")
    times = (row["beside"] / row["alone"] for row in hostile)
    yield f"{CLIENTS} clients, p95 of a token's time: beside hostile grammars / without", times
    for pair, part in {"real": "passes-real", "1b": "passes", "chat": "passes"}.items():
        name, passes = PAIRS[pair], results.rows(part, pair=pair, cached=200, form="invariant")
        yield (
            f"pass over 5 tokens / over 1, {name}",
            (r["5 of one"] / r["1 of one"] for r in passes),
        )
        for other, (said, peer) in OTHERS.items():
            rows = results.rows(other, pair=pair)
            yield f"{said}, {name}: default / {peer}", over_best(rows, "default", BESTS[peer])
        turns = results.rows("second-turns", pair=pair)
        kept = (row["kept"] / row["fresh"] for row in turns)
        yield f"first token of a second turn, {name}: on kept caches / without", kept
    speech = speedups(results.rows("speech"), "default", "genai-plain")
    yield "speech: default / openvino.genai's plain", speech


CURVE = "vnni 1B 100M"
"""The costs that edits are shown with, of those that they are replayed on."""

BESTS = {"plain": "plain", GENAI: "genai"}
OTHERS = {
    "again": ("asked again", "plain"),
    "busy": ("beside other work", "plain"),
    "fresh": ("first generation of a process", GENAI),
}
"""Parts by what they are called, and what the default is compared with."""

PASSES = ("1 of one", "9 of one", "1 of 8")
"""Passes of tables; charts have more."""


def of_passes(results: Results) -> Iterator[Line]:
    """Passes with the promise over those without it."""
    rows = [row for part in ("passes-real", "passes") for row in results.rows(part)]
    for pair, cached in dict.fromkeys((row["pair"], row["cached"]) for row in rows):
        own = ({**row, "method": row["form"]} for row in select(rows, pair=pair, cached=cached))
        found = list(own)
        times = (speedups(found, "invariant", "usual", name) for name in PASSES)
        yield f"{PAIRS[pair]}: {cached:,} cached", [f"{median(each):.2f}" for each in times]


def of_texts(results: Results) -> Iterator[Line]:
    """Texts that are not those of plain decoding alone, by who drafts."""
    groups: dict[str, list[Row]] = {}
    for row in (row for row in results.rows("texts") if "way" in row):
        name = f"{PAIRS[row['pair']].partition(',')[0]}: {row['way'].partition(', ')[0]}"
        groups.setdefault(name, []).append(row)
    for name, group in groups.items():
        found = (select(group, texts=kind) for kind in ("greedy", "seeded"))
        counts = ((sum(r["differ"] for r in own), sum(r["of"] for r in own)) for own in found)
        yield name, [f"{differ} of {of}" for differ, of in counts]


TABLES: Mapping[str, Table] = {
    "defaults": Table(
        tuple(SINGLE.values()),
        (
            *("default / plain", f"default / {GENAI}", "suffix drafts / plain"),
            *("draft model alone / plain", "default / best constant length"),
        ),
        of_defaults,
    ),
    "several": Table(
        tuple(SEVERAL.values()),
        ("tokens/s", "default / plain", f"default / {PROMISE}", f"default / {GENAI}"),
        of_several,
    ),
    "long": Table(
        tuple(part for parts in LONG.values() for part in parts),
        (
            *("first token, s", "openvino.genai's", "plain, tokens/s after it"),
            *("default / plain", f"default / {GENAI}"),
        ),
        of_long,
    ),
    "structured": Table(
        tuple(SCHEMAS.values()),
        (
            *("default / plain", f"answers/s, any whitespace: default / {GENAI}"),
            "schema / free text, without drafts",
        ),
        of_structured,
    ),
    "others": Table(
        (
            *(*CALLS.values(), "structured", "passes-real", "passes", *OTHERS),
            *("second-turns", "speech"),
        ),
        ("",),
        of_others,
    ),
    "passes": Table(
        ("passes-real", "passes"),
        (
            "1 token: with the promise / without",
            *("9 tokens of one text", "1 token of each of 8 texts"),
        ),
        of_passes,
    ),
    "texts": Table(("texts",), ("greedy texts that differ", "seeded texts that differ"), of_texts),
}
"""By name."""
