"""What figures say in words and in charts, for pages: it follows from the files, as tables do."""

from collections.abc import Mapping, Sequence
from statistics import median

from lab.benchmarks.charts import CHARTS, IMAGES
from lab.benchmarks.figures.parts import PROMPTS
from lab.benchmarks.figures.results import (
    CONTROL,
    PAIRS,
    SINGLE,
    Results,
    by_prompt,
    cells,
    count,
    differing,
    over_best,
    plain_of,
    rising,
    speeds,
    speedups,
)
from lab.benchmarks.record import Row, select
from lab.benchmarks.tables import LEAST

SEVERAL = {"1b": "several-1b", "chat": "several-chat"}
"""The parts with several requests, by pair."""


def pairs_of(parts: Mapping[str, str], results: Results) -> dict[str, list[Row]]:
    """Rows by pair, of those that were measured. parts: by pair."""
    found = {pair: results.rows(part, pair=pair) for pair, part in parts.items()}
    return {pair: rows for pair, rows in found.items() if rows}


def conditions(results: Sequence[Results]) -> str:
    """What is the same for all tables: processors, versions, prompts, and what cells show."""
    lines = [f"- `{each.name}`: {each.equipment}" for each in results]
    lines += [f"- {name}: {said}" for name, said in PROMPTS.items()]
    lines.append(f"- cells: medians, with quartiles in brackets where n is at least {LEAST}")
    for each in results:
        wrong, of = differing(each.record.rows)
        if of:
            said = "greedy texts that were timed and are not those of plain decoding"
            lines.append(f"- `{each.name}`, default: {wrong} of {of:,} {said}")
        if all(found := [speeds(each.rows(pair, heat=0.0), "genai-plain") for pair in CONTROL]):
            one, other = (f"{median(values):.0f}" for values in found)
            said = "openvino.genai's plain decoding of the same model of 1 B in two processes"
            lines.append(f"- `{each.name}`, a control: {said}, {one} and {other} tokens/s")
    return "\n".join(lines) + "\n\n"


def in_words(results: Results) -> str:
    """What a newcomer asks, in sentences; the more of them, the more was measured."""
    lines = [
        f"- {PAIRS[pair]}: {said} (n = {count(rows)})"
        for pair, rows in pairs_of(SINGLE, results).items()
        if (said := of_pair(select(rows, heat=0.0), plain_of(pair, results)))
    ]
    if costs := promise(results):
        lines.append(f"- price of the same text in any batch: {costs}")
    if not lines:
        return ""
    head = f"With default options, greedily, on held-out prompts, `{results.name}`:"
    items = "\n".join(lines)
    return f"{head}\n\n{items}\n\n*{results.measured([*SINGLE.values(), *SEVERAL.values()])}*\n\n"


def of_pair(rows: list[Row], plain: Mapping[object, float]) -> str:
    """The default against plain decoding and openvino.genai, whose plain speeds are by prompt."""
    own = speedups(rows, "default", "plain")
    defaults = by_prompt(select(rows, method="default"))
    peer = [speed / plain[prompt] for prompt, speed in defaults.items() if prompt in plain]
    at_best = over_best(rows, "default", "genai")
    if not (own and peer and at_best):
        return ""
    bound = "at most " if rising(rows, "genai") else ""
    return (
        f"{median(own):.2f} times as fast as plain decoding, {median(peer):.2f} times as fast as "
        f"openvino.genai's, and {bound}{median(at_best):.2f} times as fast as its best setting"
    )


def promise(results: Results) -> str:
    """What batch invariance costs several requests, in the most expensive case of each pair."""
    found = []
    for pair, rows in pairs_of(SEVERAL, results).items():
        ratios = {
            (group[0]["requests"], group[0]["cached"]): median(values)
            for group in cells(rows).values()
            if (values := speedups(group, "default", "default-not-invariant"))
        }
        if ratios:
            requests, cached = min(ratios, key=ratios.__getitem__)
            found.append(
                f"{ratios[requests, cached]:.2f} of the speed without it ({PAIRS[pair]}, "
                f"{requests} requests with {cached:,} cached tokens, the most expensive case)"
            )
    return "; ".join(found)


def picture(name: str) -> str:
    """A chart for a page of docs, where it was drawn."""
    file = IMAGES / f"{name}.svg"
    return f"\n![{CHARTS[name][0]}](images/{file.name})\n\n" if file.exists() else ""
