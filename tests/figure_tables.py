"""Tables of figures in pages: what stands between `<!-- figures: NAME -->` and `<!-- end -->`.

NAME is a key of `TABLES`; `NAME of PROCESSOR` takes the file docs/figures/PROCESSOR.json alone.
`python -m tests.docs` writes the tables anew, from the files: it measures nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median

from tests.benchmarks.figures.results import Results, best, methods, over_best, speedups
from tests.benchmarks.labels import label
from tests.benchmarks.record import Row, select
from tests.benchmarks.tables import in_quartiles, numbers

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "models" / "README.md"]
BLOCK = re.compile(
    r"(<!-- figures: ([\w-]+)(?: of ([\w-]+))? -->\n)(?:.*?\n)??(<!-- end -->)", re.S
)

Lines = list[Sequence[str]]
Table = Callable[[Results], Lines]
"""The lines of cells of a table, its head first."""

SETS = {"heldout": "held-out prompts", "code": "prompts like its training"}
HEATS = {0.0: "greedy", 0.8: "temperature 0.8"}


def filled(page: str, results: Sequence[Results]) -> str:
    """A page with its tables as the figures are now. `KeyError` for a table that does not exist."""

    def block(found: re.Match[str]) -> str:
        head, name, processor, end = found.groups()
        chosen = [each for each in results if processor in (None, each.name)]
        shown = [text for each in chosen if (text := show(name, each))]
        return f"{head}\n{''.join(shown) or NONE.format(part=','.join(TABLES[name][0]))}{end}"

    return BLOCK.sub(block, page)


NONE = "*Not measured: `python -m tests.benchmarks figures --only {part}`.*\n\n"


def show(name: str, results: Results) -> str:
    """A table, and what it was measured with below it; empty where nothing was measured."""
    parts, make = TABLES[name]
    if not results.parts.get(parts[0]):
        return ""
    head, *lines = make(results)
    cells = [head, ["---"] + ["---:"] * (len(head) - 1), *lines]
    rows = "\n".join(f"| {' | '.join(line)} |" for line in cells)
    return f"{rows}\n\n*{about(parts, results)}*\n\n"


def about(parts: Sequence[str], results: Results) -> str:
    """Processor, versions, date, commit, how often, and the command; the memory of one pair."""
    rows = [row for part in parts for row in results.parts.get(part, [])]
    counts = [len({r["turn"] for r in group if "turn" in r}) for group in columns(rows)]
    counts = [count for count in counts if count] or [1]
    often = f"n = {min(counts)}" + (f" to {max(counts)}" if max(counts) > min(counts) else "")
    pairs = [*dict.fromkeys(PAIR_OF.get(part, part) for part in parts)]
    memory = default_memory(results, pairs[0]) if len(pairs) == 1 else []
    held = [f"memory {row['memory']:.0f} MiB" for row in memory]
    roles = [f" --{role} {m['name']}" for role, m in results.record.models.items() if role in pairs]
    command = f"`python -m tests.benchmarks figures --only {','.join(parts)}{''.join(roles)}`"
    facts = [results.stamp, often, *held]
    return f"{'; '.join(facts)}; medians, quartiles in brackets. {command}"


PAIR_OF = {
    "tasks": "chat",
    "concurrency": "embedded",
    "concurrency-expanded": "expanded",
    "frameworks": "expanded",
    "llama-cpp": "chat",
    "processes": "embedded",
}
"""The models of a part that is not called like them."""


COMPARED = ("part", "prompts", "heat", "requests", "pair", "task", "way", "cached")
"""Fields that are the same in rows that are compared with each other."""


def columns(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by what they are compared with."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row.get(name) for name in COMPARED)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def default_memory(results: Results, pair: str) -> list[Row]:
    """What a process with default options holds, where that was measured."""
    rows = results.rows("memory", pair=pair, shapes="auto")
    return [row for row in rows if row["method"] in ("adaptive", "suffix")]


def by_method(part: str) -> Table:
    """Methods down, prompts and temperatures across: speed over plain decoding."""

    def make(results: Results) -> Lines:
        places = [(name, heat) for name in SETS for heat in HEATS]
        head = [
            "",
            "held-out, greedy, tokens/s",
            *(f"{SETS[name]}, {HEATS[heat]}" for name, heat in places),
        ]
        rows = results.rows(part)
        lines: Lines = [head]
        for method in methods(rows):
            first = select(rows, method=method, prompts="heldout", heat=0.0)
            cells = [spread(numbers(first, "speed"), ".0f")]
            for name, heat in places:
                own = select(rows, prompts=name, heat=heat)
                cells.append(spread(speedups(own, method)))
            lines.append([label(method), *cells])
        return lines

    return make


def by_task(results: Results) -> Lines:
    """Tasks down, drafters across: speed over plain decoding; of lengths, the best for the task."""
    rows = results.rows("tasks")
    own = ("suffix", "prompt-lookup", "genai-plain")
    head = ["", *map(label, own), "openvino.genai, prompt lookup, best length"]
    lines: Lines = [head]
    found: dict[str, list[list[float]]] = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        these = select(rows, task=task)
        fastest = best(these, "genai-prompt-lookup") or ""
        found[task] = [speedups(these, name) for name in (*own, fastest)]
        lines.append([task.replace("_", " "), *map(spread, found[task])])
    means = (
        f"{mean(median(v) for v in column):.2f}" if all(column) else ""
        for column in zip(*found.values(), strict=True)
    )
    return [*lines, ["mean of the medians", *means]]


def by_requests(part: str) -> Table:
    """Requests down, methods across: speed over plain decoding of as many requests."""

    def make(results: Results) -> Lines:
        rows = results.rows(part)
        lengths = "openvino.genai, draft model, best length"
        lines: Lines = [
            ["requests", "plain, tokens/s", "default", "openvino.genai, plain", lengths]
        ]
        for number in sorted({row["requests"] for row in rows}):
            own = select(rows, requests=number)
            speeds = spread(numbers(select(own, method="plain"), "speed"), ".0f")
            names = ("adaptive", "genai-plain", best(own, "genai-draft") or "")
            ratios = (spread(speedups(own, name)) for name in names)
            lines.append([str(number), speeds, *ratios])
        return lines

    return make


def of_memory(results: Results) -> Lines:
    """What a process holds after ten seconds, and its speed."""
    lines: Lines = [["", "method", "static shapes", "MiB after 10 s", "tokens/s"]]
    for row in results.rows("memory"):
        shapes = "" if row["shapes"] == "None" else row["shapes"].strip("()").rstrip(",")
        held = (f"{row[name]:.0f}" for name in ("memory", "speed"))
        lines.append([results.model(row["pair"]), label(row["method"]), shapes, *held])
    return lines


def of_processes(results: Results) -> Lines:
    """The first process on a machine, and the one after it."""
    lines: Lines = [["process", "tokens/s, 10 runs", "first token (ms)", "MiB after the first run"]]
    for which in ("first", "second"):
        rows = results.rows("processes", method=which)
        first = [1000 * value for value in numbers(rows, "first")]
        cells = (spread(numbers(rows, "speed"), ".0f"), spread(first, ".0f"))
        lines.append([which, *cells, spread(numbers(rows, "memory"), ".0f")])
    return lines


def of_second_turns(results: Results) -> Lines:
    """The first token of a second turn."""
    lines: Lines = [["", "kept KV cache (ms)", "without (ms)", "kept / without"]]
    for pair in dict.fromkeys(row["pair"] for row in results.rows("second-turns")):
        rows = results.rows("second-turns", pair=pair)
        times = ([1000 * v for v in numbers(rows, name)] for name in ("kept", "fresh"))
        ratios = [row["kept"] / row["fresh"] for row in rows]
        lines.append([results.model(pair), *(spread(t, ".1f") for t in times), spread(ratios)])
    return lines


def of_speech(results: Results) -> Lines:
    """Transcription."""
    lines: Lines = [["", "seconds", "seconds per second of speech", "speed over plain"]]
    rows = results.rows("speech")
    for name in methods(rows):
        own = select(rows, method=name)
        factor = [row["seconds"] / row["duration"] for row in own]
        cells = (spread(numbers(own, "seconds")), spread(factor, ".3f"))
        lines.append([label(name), *cells, spread(speedups(rows, name))])
    return lines


def of_invariance(results: Results) -> Lines:
    """Pairs and cached tokens down, ways to decode across: speed with it over speed without it."""
    rows = results.rows("invariance")
    ways = list(dict.fromkeys(row["way"] for row in rows))
    lines: Lines = [["", "cached tokens", *ways]]
    for pair, cached in dict.fromkeys((row["pair"], row["cached"]) for row in rows):
        own = select(rows, pair=pair, cached=cached)
        cells = (spread(numbers(select(own, way=way), "ratio")) for way in ways)
        lines.append([results.model(pair), f"{cached:,}", *cells])
    return lines


def of_load(results: Results) -> Lines:
    """A server under load: what has come of all requests."""
    [row] = results.rows("load")
    start, *later = row["memory"]
    minutes = f"{row['seconds'] / 60:.0f} minutes"
    return [
        ["", f"in {minutes}"],
        ["guidellm's requests: whole, failed", f"{row['whole']:,}, {row['failed']}"],
        ["answers compared, wrong", f"{row['compared']:,}, {row['wrong']}"],
        ["clients that disconnected", f"{row['left']:,}"],
        ["hostile requests, each answered with an error", f"{row['hostile']:,}"],
        ["requests that the full queue refused", f"{row['refused']:,}"],
        ["answers of /health: 200, others", f"{row['health']:,}, {row['unhealthy']}"],
        [
            "memory (MB): before, half-way, at the end",
            ", ".join(f"{held:,}" for held in (start, later[len(later) // 2 - 1], later[-1])),
        ],
    ]


def of_frameworks(part: str) -> Table:
    """Other frameworks on the same model."""

    def make(results: Results) -> Lines:
        rows = results.rows(part)
        lines: Lines = [["", "tokens/s", "speed over plain"]]
        for name in methods(rows):
            speeds = numbers(select(rows, method=name), "speed")
            lines.append([label(name), spread(speeds, ".1f"), spread(speedups(rows, name))])
        return lines

    return make


def of_defaults(results: Results) -> Lines:
    """Default options against the best of other settings, pair by pair."""
    pairs = ("embedded", "chat", "expanded")
    lines: Lines = [["", *map(results.model, pairs)]]
    cells: Mapping[str, Callable[[str], str]] = {
        "drafts from": lambda pair: "the text, by suffix" if pair in DEFAULT else "a draft model",
        "plain decoding, tokens/s": lambda pair: spread(
            numbers(select(heldout(results, pair, 0.0), method="plain"), "speed"), ".0f"
        ),
        "default / plain, greedy": lambda pair: spread(
            speedups(heldout(results, pair, 0.0), DEFAULT.get(pair, "adaptive"))
        ),
        "default / plain, temperature 0.8": lambda pair: spread(
            speedups(heldout(results, pair, 0.8), DEFAULT.get(pair, "adaptive"))
        ),
        "default / best constant draft length, greedy": lambda pair: spread(
            over_best(results.rows(pair, heat=0.0), "adaptive", "constant")
        ),
        "default / best constant draft length, temperature 0.8": lambda pair: spread(
            over_best(results.rows(pair, heat=0.8), "adaptive", "constant")
        ),
        "default / openvino.genai's best draft length": lambda pair: spread(
            over_best(results.rows(pair, heat=0.0), "adaptive", "genai-draft")
        ),
        "plain / openvino.genai's plain": lambda pair: spread(
            speedups(results.rows(SINGLE.get(pair, pair), heat=0.0), "plain", "genai-plain")
        ),
        **{
            f"{number} requests, default / openvino.genai's best setting": together(results, number)
            for number in (4, 8, 16)
        },
        "default / openvino.genai's best prompt lookup, six tasks": lambda pair: spread(
            over_best(results.rows("tasks"), "suffix", "genai-prompt") if pair == "chat" else []
        ),
        "first process on a machine / second one": lambda pair: spread(
            speedups(results.rows("processes"), "first", "second") if pair == "embedded" else []
        ),
        "memory after 10 s of decoding, MiB": lambda pair: "".join(
            f"{row['memory']:.0f}" for row in default_memory(results, pair)
        ),
    }
    return [*lines, *([name, *map(cell, pairs)] for name, cell in cells.items())]


def of_headlines(results: Results) -> Lines:
    """The rows of `of_defaults` that a newcomer asks for."""
    head, *lines = of_defaults(results)
    asked = ("drafts from", "plain decoding", "default / plain", "plain / openvino", "4 requests")
    peers = ("default / openvino", "memory")
    return [head, *(line for line in lines if line[0].startswith(asked + peers))]


SINGLE = {"chat": "tasks"}
"""The part with single requests of a pair, if its name differs."""

DEFAULT = {"chat": "suffix"}
"""The method of the default options, if there is no draft model."""


def heldout(results: Results, pair: str, heat: float) -> list[Row]:
    """Single requests of a pair on prompts outside its training data."""
    rows = results.rows(SINGLE.get(pair, pair), heat=heat)
    return [row for row in rows if row["prompts"] != "code"]


def together(results: Results, number: int) -> Callable[[str], str]:
    """A cell: so many requests, against the best of openvino.genai's settings."""
    parts = {"embedded": "concurrency", "expanded": "concurrency-expanded"}

    def cell(pair: str) -> str:
        rows = results.rows(parts[pair], requests=number) if pair in parts else []
        return spread(over_best(rows, "adaptive", "genai"))

    return cell


def spread(values: Iterable[float], form: str = ".2f") -> str:
    """The median, and the quartiles; empty without values."""
    found = list(values)
    return in_quartiles(found, form) if found else ""


ALL_PAIRS = (*("embedded", "tasks", "expanded", "concurrency", "concurrency-expanded", "memory"),)

TABLES: Mapping[str, tuple[Sequence[str], Table]] = {
    "defaults": ((*ALL_PAIRS, "processes"), of_defaults),
    "headlines": (ALL_PAIRS, of_headlines),
    "embedded": (("embedded",), by_method("embedded")),
    "expanded": (("expanded",), by_method("expanded")),
    "tasks": (("tasks",), by_task),
    "concurrency": (("concurrency",), by_requests("concurrency")),
    "concurrency-expanded": (("concurrency-expanded",), by_requests("concurrency-expanded")),
    "memory": (("memory",), of_memory),
    "processes": (("processes",), of_processes),
    "second-turns": (("second-turns",), of_second_turns),
    "speech": (("speech",), of_speech),
    "invariance": (("invariance",), of_invariance),
    "load": (("load",), of_load),
    "frameworks": (("frameworks",), of_frameworks("frameworks")),
    "llama-cpp": (("llama-cpp",), of_frameworks("llama-cpp")),
}
"""By name: the parts that a table is of, and how it is made."""
