"""Figures in pages: what stands between `<!-- figures: NAME -->` and `<!-- end -->`.

NAME is a key of `TABLES`, "sentences", "conditions", or that of a chart after `chart-`.
`NAME of COLUMN` takes the file docs/figures/COLUMN.json alone. `python -m lab.docs` writes the
blocks anew, from the files: it measures nothing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median

from lab.benchmarks.figures.parts import PARTS
from lab.benchmarks.figures.results import (
    NOISY,
    PAIRS,
    SINGLE,
    Results,
    best,
    by_prompt,
    cells,
    count,
    methods,
    over_best,
    rising,
    scatter,
    speeds,
    speedups,
)
from lab.benchmarks.figures.structured import CLIENTS, FREE, GRAMMARS, MOST, SPACED, TOGETHER
from lab.benchmarks.figures.tools import CURVES, MANY
from lab.benchmarks.peers.genai import MAX_NGRAM_SIZE
from lab.benchmarks.peers.methods import label
from lab.benchmarks.record import Row, select
from lab.benchmarks.tables import in_quartiles, markdown, numbers
from lab.docs.figure_sentences import SEVERAL, conditions, in_words, pairs_of, picture

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "models" / "README.md"]
BLOCK = re.compile(
    r"(<!-- figures: ([\w-]+)(?: of ([\w-]+))? -->\n)(?:.*?\n)??(<!-- end -->)", re.S
)
NONE = "*Not measured with this version.*\n\n"

Lines = list[Sequence[str]]
Table = Callable[[Results], Lines]
"""The lines of cells of a table, its head first."""

MODELS = {"chat": "--chat SMOLLM2", "speech": "--speech WHISPER"}
"""Options of a command that measures parts, by what they need."""

HEATS = {0.0: "greedy", 0.8: "temperature 0.8"}


def filled(page: str, results: Sequence[Results]) -> str:
    """A page with its figures as they are now. `KeyError` for a name that does not exist."""

    def block(found: re.Match[str]) -> str:
        head, name, column, end = found.groups()
        if (chart := name.removeprefix("chart-")) != name:
            return f"{head}{picture(chart)}{end}"
        chosen = [each for each in results if column in (None, each.name)]
        if name == "conditions":
            return f"{head}\n{conditions(chosen)}{end}"
        make = in_words if name == "sentences" else partial(show, *TABLES[name])
        shown = [make(each) for each in chosen]
        return f"{head}\n{''.join(shown) or NONE}{end}"

    return BLOCK.sub(block, page)


def show(parts: Sequence[str], make: Table, results: Results) -> str:
    """A table, and what it was measured with below it; empty where nothing was measured."""
    parts = [part for part in parts if part in results.parts]
    rows = [row for part in parts for row in results.parts[part]]
    if not rows:
        return ""
    head, *body = make(results)
    lines = [head, *(line for line in body if any(line[1:]))]
    if len(lines) < 2:
        return ""
    return f"{markdown(lines, '---:')}\n\n*{about(parts, rows, results)}*\n\n"


def about(parts: Sequence[str], rows: Sequence[Row], results: Results) -> str:
    """Column, date, commit, prompts, outputs, n, scatter and the command."""
    groups = [group for group in cells(rows).values() if "prompt" in group[0]]
    sizes = [count(group) for group in groups] or [1]
    often = f"n = {min(sizes)}" + (f" to {max(sizes)}" if max(sizes) > min(sizes) else "")
    facts = [f"`{results.name}`, {results.measured(parts)}"]
    by_about: dict[str, list[str]] = {}
    for part in parts:
        by_about.setdefault(PARTS[part].about, []).append(part)
    is_one = len(by_about) == 1
    facts += (f"{'' if is_one else ', '.join(own) + ': '}{said}" for said, own in by_about.items())
    facts.append(often)
    for name, said in {"plain": "plain decoding", "genai-plain": "openvino.genai's"}.items():
        if found := [noise for group in groups if (noise := scatter(group, name))]:
            most, middle = max(map(max, found)), max(map(median, found))
            noisy = ", **which is much**" if middle > NOISY else ""
            differ = f"by {middle:.0%} in the median{noisy}, and by {most:.0%} at most"
            facts.append(f"{said} and its repetition differ {differ}")
    if any(str(row.get("method")).startswith("genai-prompt-lookup") for row in rows):
        facts.append(f"prompt lookup with max_ngram_size={MAX_NGRAM_SIZE} only")
    facts += cut_off(rows)
    said = f"{'; '.join(facts)}."
    needs = {PARTS[part].needs for part in parts} | {row.get("pair") for row in rows}
    models = "".join(f" {option}" for need, option in MODELS.items() if need in needs)
    command = f"python -m lab.benchmarks figures {results.name} --only {','.join(parts)}{models}"
    return f"{said} `{command}`"


def cut_off(rows: Sequence[Row]) -> list[str]:
    """How many answers under a schema did not end, and whose they are."""
    answers = [row for row in rows if row["part"] == "structured" and row.get("passes")]
    answers = [row for row in answers if not row["form"].startswith(FREE)]
    counts = Counter(label(row["method"]) for row in answers if row["tokens"] == MOST)
    whose = ", ".join(f"{number} by {method}" for method, number in counts.items())
    said = f"{counts.total()} of {len(answers)} answers were cut off, and count as what they took"
    return [f"{said} ({whose})"] if counts else []


def spread(values: Iterable[float], form: str = ".2f") -> str:
    """The median, and the quartiles; empty without values."""
    found = list(values)
    return in_quartiles(found, form) if found else ""


def to_best(rows: Sequence[Row], method: str, beginning: str, name: str = "speed") -> str:
    """A method over the best of those that begin so; a bound where the longest draft is best."""
    found = spread(over_best(rows, method, beginning, name))
    return f"at most {found}" if found and rising(rows, beginning, name) else found


def by_method(pair: str) -> Table:
    """Methods down, temperatures across: speed over plain decoding."""

    def make(results: Results) -> Lines:
        rows = results.rows(SINGLE[pair])
        heads = (f"over plain, {heat}" for heat in HEATS.values())
        lines: Lines = [["", "tokens/s, greedy", "accepted", *heads]]
        for method in methods(rows):
            own = [select(rows, heat=heat) for heat in HEATS]
            ratios = (spread(speedups(each, method)) for each in own)
            speed = spread(speeds(own[0], method), ".0f")
            lines.append([label(method), speed, accepted(own[0], method), *ratios])
        return lines

    return make


def accepted(rows: Sequence[Row], method: str) -> str:
    """The share of a method's draft tokens that were accepted; empty where that is unknown."""
    own = [row for row in select(rows, method=method) if row.get("drafted")]
    share = sum(row["accepted"] for row in own) / sum(row["drafted"] for row in own) if own else 0
    return f"{share:.0%}" if own else ""


def by_task(results: Results) -> Lines:
    """Tasks down, methods across: speed over plain decoding."""
    rows = results.rows("tasks")
    lookup = best(rows, "genai-prompt-lookup") or ""
    names = ("default", "genai-plain", lookup)
    lines: Lines = [["", *map(label, names)]]
    found = list[list[list[float]]]()
    for task in dict.fromkeys(row["task"] for row in rows):
        these = select(rows, task=task)
        found.append([speedups(these, name) for name in names])
        lines.append([task.replace("_", " "), *map(spread, found[-1])])
    columns = zip(*found, strict=True)
    means = (f"{mean(median(v) for v in each):.2f}" for each in columns if all(each))
    return [*lines, ["mean of the medians", *means]]


def by_requests(results: Results) -> Lines:
    """Requests and cached tokens down: default against itself without the promise, and peers."""
    lines: Lines = [
        [
            *("", "cached tokens", "requests", "default, tokens/s"),
            *("default / `batch_invariant=False`", "default / plain"),
            *("default / openvino.genai's best", "`batch_invariant=False` / its best", "its best"),
            *("a request's own speed: default / plain", "default / openvino.genai's plain"),
            "slowest first token: default / its plain",
        ]
    ]
    for pair, rows in pairs_of(SEVERAL, results).items():
        for cached, requests in sorted({(row["cached"], row["requests"]) for row in rows}):
            own = select(rows, cached=cached, requests=requests)
            chosen = best(own, "genai") or ""
            bases = ("default-not-invariant", "plain")
            lines.append(
                [
                    *(PAIRS[pair], f"{cached:,}", str(requests)),
                    spread(speeds(own, "default"), ".0f"),
                    *(spread(speedups(own, "default", base)) for base in bases),
                    to_best(own, "default", "genai"),
                    to_best(own, "default-not-invariant", "genai"),
                    label(chosen).partition(", ")[2],
                    spread(speedups(own, "default", "plain", "each")),
                    spread(speedups(own, "default", "genai-plain", "each")),
                    spread(speedups(own, "default", "genai-plain", "first")),
                ]
            )
    return lines


def of_long(results: Results) -> Lines:
    """The default over the best constant length in long outputs, by temperature."""
    head = (f"default / best constant length, {heat}" for heat in HEATS.values())
    lines: Lines = [["", *head, "the best, greedy"]]
    for pair, rows in pairs_of(dict.fromkeys(PAIRS, "long"), results).items():
        own = [select(rows, heat=heat) for heat in HEATS]
        chosen = label(best(own[0], "constant") or "").partition(", ")[2]
        lines.append([PAIRS[pair], *(to_best(each, "default", "constant") for each in own), chosen])
    return lines


def of_structured(results: Results) -> Lines:
    """Schemas down: what drafts gain under a grammar, and what the grammar costs without them."""
    lines: Lines = [
        [
            *("", "tokens", "plain decoding with the schema, tokens/s", "default / plain"),
            "answers/s, any whitespace: default / openvino.genai's best",
            "schema / free text, without drafts",
        ]
    ]
    rows = results.rows("structured")
    kinds = dict.fromkeys(row["form"] for row in rows if row["form"] not in GRAMMARS)
    for kind in (kind for kind in kinds if not kind.startswith(FREE)):
        own = [{**row, "answers": row["speed"] / row["tokens"]} for row in select(rows, form=kind)]
        plain = by_prompt(select(own, method="plain"))
        free = by_prompt(select(rows, form=f"{FREE}, {kind}"))
        lines.append(
            [
                kind,
                spread(numbers(select(own, method="default"), "tokens"), ".0f"),
                spread(plain.values(), ".0f"),
                spread(speedups(own, "default")),
                to_best(own, SPACED, "genai", "answers"),
                spread(plain[prompt] / free[prompt] for prompt in plain.keys() & free.keys()),
            ]
        )
    return lines


def of_grammars(results: Results) -> Lines:
    """What else a grammar does: to requests that share passes, and to other clients."""
    forced, together, hostile = (results.rows("structured", form=form) for form in GRAMMARS)
    found = {
        "forced tokens alone / replay on this machine's cost curve": [
            row["speed"] / row["replayed"] for row in forced
        ],
        "the same at the pace of free text right after": [
            row["pace"] * row["speed"] / row["replayed"] for row in forced if "pace" in row
        ],
        f"{TOGETHER}: default / plain": speedups(together, "default"),
        f"{CLIENTS} clients, p95 of a token's time: beside one with hostile grammars / without": [
            row["beside"] / row["alone"] for row in hostile
        ],
    }
    lines = [[name, spread(values), str(len(values))] for name, values in found.items() if values]
    return [["", "measured", "n"], *lines]


def of_again(results: Results) -> Lines:
    """Questions that were answered before."""
    lines: Lines = [["", "plain decoding, tokens/s", "default / plain"]]
    for pair, rows in pairs_of(dict.fromkeys(PAIRS, "again"), results).items():
        cells_ = (spread(speeds(rows, "plain"), ".0f"), spread(speedups(rows, "default")))
        lines.append([PAIRS[pair].partition(",")[0], *cells_])
    return lines


def of_tools(results: Results) -> Lines:
    """Calls: what drafts gain, by task; first tokens; and a loop."""
    rows = results.rows("tools")
    calls = select(rows, form="calls")
    lines: Lines = [["", "measured", "n"]]

    def line(name: str, values: Iterable[float], form: str = ".2f") -> None:
        lines.append([name, spread(found := list(values), form), str(len(found))])

    for task in dict.fromkeys(row["task"] for row in calls):
        line(f"{task}: default / plain, SmolLM2", speedups(select(calls, task=task), "default"))
    line("worst of them", sorted(speedups(calls, "default"))[:1])
    many, loop = select(rows, form="many tools"), select(rows, form="loop")
    extra = (1000 * (row["bound"] - row["bare"]) for row in many)
    line(
        f"first token with {MANY} tools, beyond the same prompt without a grammar, ms", extra, ".0f"
    )
    cached, known = (sum(row[name] for row in loop) for name in ("cached", "known"))
    reused = f"{cached:,} of {known:,}"
    if loop:
        lines.append([f"prompt tokens of {len(loop)} later turns that were cached", reused, "1"])
    return lines


def of_edits(results: Results) -> Lines:
    """Recorded edits on the cost curves of machines, without a clock."""
    lines: Lines = [["recorded edits, simulated on the cost curve of", "n", *EDIT_RATIOS]]
    for machine in CURVES:
        if rows := results.rows("tools", form=machine):
            ratios = (spread(speedups(rows, "default", base)) for base in EDIT_RATIOS.values())
            lines.append([machine, str(count(rows)), *ratios])
    return lines


EDIT_RATIOS = {"default / plain": "plain", "with escaped copies / without": "without-copies"}
"""What edits are compared with, by what the ratio is called."""


def of_busy(results: Results) -> Lines:
    """The default over plain decoding beside other work."""
    lines: Lines = [["", "plain decoding, tokens/s", "default / plain", "accepted"]]
    for pair, rows in pairs_of(dict.fromkeys(PAIRS, "busy"), results).items():
        drafts = select(rows, method="default")
        counts = (sum(row.get(name) or 0 for row in drafts) for name in ("accepted", "drafted"))
        accepted = " of ".join(f"{number:,}" for number in counts)
        speed = spread(speeds(rows, "plain"), ".0f")
        lines.append([PAIRS[pair], speed, spread(speedups(rows, "default")), accepted])
    return lines


def of_fresh(results: Results) -> Lines:
    """A process without options: its first generation, and one after ten seconds of others."""
    lines: Lines = [
        [
            *("", "method", "first generation, tokens/s", "its first token, ms"),
            *("after ten seconds, tokens/s", "its first token, ms"),
        ]
    ]
    for pair, rows in pairs_of(dict.fromkeys(PAIRS, "fresh"), results).items():
        for method in methods(rows):
            own = select(rows, method=method)
            line = [PAIRS[pair], label(method)]
            for name in ("", "later "):
                line.append(spread(numbers(own, f"{name}speed"), ".0f"))
                line.append(spread((1000 * v for v in numbers(own, f"{name}first")), ".0f"))
            lines.append(line)
    return lines


def of_memory(results: Results) -> Lines:
    """What a process holds after ten seconds, by whose it is."""
    lines: Lines = [
        ["", "method", "static shapes", "own, MiB", "mapped, MiB", "KiB a cached token"]
    ]
    for row in results.rows("memory"):
        is_own = row["shapes"] != "None"
        shapes = row["shapes"].strip("()").rstrip(",") if is_own else ""
        held = (f"{row[name]:.0f}" for name in ("own", "mapped"))
        token = f"{row['token']:.1f}" if row["shapes"] == "none" else ""
        lines.append([PAIRS[row["pair"]], label(row["method"]), shapes, *held, token])
    return lines


def of_passes(results: Results) -> Lines:
    """Pairs and cached tokens down, passes across: milliseconds with the promise and without."""
    rows = results.rows("passes")
    names = [name for name in rows[0] if name.endswith((" of one", " of 8"))]
    heads = (
        name.replace("of one", "of one text").replace("of 8", "of each of 8") for name in names
    )
    lines: Lines = [["", "cached tokens", "batch-invariant", *heads]]
    for pair, cached, form in dict.fromkeys((r["pair"], r["cached"], r["form"]) for r in rows):
        own = select(rows, pair=pair, cached=cached, form=form)
        times = (spread(numbers(own, name), ".1f") for name in names)
        is_on = "yes" if form == "invariant" else "no"
        lines.append([PAIRS[pair], f"{cached:,}", is_on, *times])
    return lines


def of_second_turns(results: Results) -> Lines:
    """The first token of a second turn."""
    lines: Lines = [["", "kept KV cache (ms)", "without (ms)", "kept / without"]]
    for pair, rows in pairs_of(dict.fromkeys(PAIRS, "second-turns"), results).items():
        times = ([1000 * v for v in numbers(rows, name)] for name in ("kept", "fresh"))
        ratios = [row["kept"] / row["fresh"] for row in rows]
        lines.append([PAIRS[pair], *(spread(t, ".1f") for t in times), spread(ratios)])
    return lines


def of_speech(results: Results) -> Lines:
    """Transcription."""
    rows = results.rows("speech")
    seconds, tokens = rows[0]["duration"], max(row.get("tokens", 0) for row in rows)
    lines: Lines = [[f"{seconds:.1f} s of speech, {tokens} tokens", "seconds", "over plain"]]
    for name in methods(rows):
        taken = spread(speeds(rows, name, "seconds"))
        lines.append([label(name), taken, spread(speedups(rows, name))])
    return lines


def of_texts(results: Results) -> Lines:
    """Texts that are not those of plain decoding alone, by who drafts."""
    rows = [row for row in results.rows("texts") if "way" in row]
    kinds = list(dict.fromkeys(row["texts"] for row in rows))
    lines: Lines = [["", "ways", *(f"{kind} texts that differ" for kind in kinds)]]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{PAIRS[row['pair']].partition(',')[0]}: {row['way'].partition(', ')[0]}"
        groups.setdefault(name, []).append(row)
    for name, group in groups.items():
        found = [select(group, texts=kind) for kind in kinds]
        counts = (f"{sum(r['differ'] for r in g)} of {sum(r['of'] for r in g)}" for g in found)
        lines.append([name, str(len(found[0])), *counts])
    return lines


def of_defaults(results: Results) -> Lines:
    """Default options against the best of other settings, pair by pair, on held-out prompts."""
    found = pairs_of(SINGLE, results)
    greedy = {pair: select(rows, heat=0.0) for pair, rows in found.items()}
    drawn = {pair: select(rows, heat=0.8) for pair, rows in found.items()}
    fresh = {pair: results.rows("fresh", pair=pair) for pair in found}
    several = {pair: results.rows(SEVERAL.get(pair, ""), pair=pair) for pair in found}

    def line(
        name: str, rows: Mapping[str, list[Row]], cell: Callable[[list[Row]], str]
    ) -> list[str]:
        return [name, *(cell(rows[pair]) if rows[pair] else "" for pair in found)]

    def at_best(beginning: str = "genai", field: str = "speed") -> Callable[[list[Row]], str]:
        return lambda rows: to_best(rows, "default", beginning, field)

    def setting(rows: list[Row]) -> str:
        return label(best(rows, "genai") or "").partition(", ")[2]

    genai = "openvino.genai's best setting"
    lines: Lines = [
        ["", *(PAIRS[pair] for pair in found)],
        line("plain decoding, tokens/s", greedy, lambda rows: spread(speeds(rows, "plain"), ".0f")),
        line("default / plain", greedy, lambda rows: spread(speedups(rows, "default"))),
        line(f"default / {genai}", greedy, at_best()),
        line("that setting", greedy, setting),
        line("the same, where both write the same text", greedy, over_same_text),
        line(f"default / {genai}, temperature 0.8", drawn, at_best()),
        line("that setting", drawn, setting),
        line("default / best constant length", greedy, at_best("constant")),
        line("default / best constant length, temperature 0.8", drawn, at_best("constant")),
        line(
            "plain / openvino.genai's plain",
            greedy,
            lambda rows: spread(speedups(rows, "plain", "genai-plain")),
        ),
        line(f"fresh process: default / {genai}", fresh, at_best()),
        line(f"after ten seconds: default / {genai}", fresh, at_best(field="later speed")),
    ]
    for requests in (4, 8):
        for cached in (200, 1500):
            own = {
                pair: select(rows, requests=requests, cached=cached)
                for pair, rows in several.items()
            }
            name = f"{requests} requests, {cached:,} cached tokens: default / {genai}"
            lines.append(line(name, own, at_best()))
    return lines


def over_same_text(rows: Sequence[Row]) -> str:
    """The default over openvino.genai's best setting, in turns with the same text of both.

    Its drafts may change the text, and with it what is accepted.
    """
    chosen = best(rows, "genai") or ""
    texts = [
        {(row["turn"], row.get("text", method)) for row in select(rows, method=method)}
        for method in ("default", chosen)
    ]
    same = {turn for turn, _ in texts[0] & texts[1]}
    alike = [row for row in rows if row["turn"] in same]
    return f"{spread(speedups(alike, 'default', chosen))} (n = {count(alike)})" if alike else ""


TABLES: Mapping[str, tuple[Sequence[str], Table]] = {
    "defaults": ((*SINGLE.values(), "fresh", *SEVERAL.values()), of_defaults),
    **{pair: ((pair,), by_method(pair)) for pair in SINGLE if pair != "chat"},
    "tasks": (("tasks",), by_task),
    "several": (tuple(SEVERAL.values()), by_requests),
    "long": (("long",), of_long),
    "structured": (("structured",), of_structured),
    "grammars": (("structured",), of_grammars),
    "again": (("again",), of_again),
    "tools": (("tools",), of_tools),
    "edits": (("tools",), of_edits),
    "busy": (("busy",), of_busy),
    "fresh": (("fresh",), of_fresh),
    "memory": (("memory",), of_memory),
    "passes": (("passes",), of_passes),
    "second-turns": (("second-turns",), of_second_turns),
    "speech": (("speech",), of_speech),
    "texts": (("texts",), of_texts),
}
"""By name: the parts that a table is of, and how it is made."""
