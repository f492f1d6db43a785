"""What is made of figures: tables, sentences and charts of pages, and comparisons of files."""

from dataclasses import replace

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.charts import CHARTS
from tests.benchmarks.figures import load
from tests.benchmarks.figures.parts import PARTS
from tests.benchmarks.figures.results import (
    PAIRS,
    SINGLE,
    Results,
    differing,
    over_best,
    rising,
)
from tests.benchmarks.record import LIMIT, Record
from tests.docs.figure_tables import to_best
from tests.load.beside import HOSTILE
from tests.support.command_line import run


def rows_of(**by_method):
    """A row for each speed of each method, prompt by prompt."""
    return [
        {"turn": n, "prompt": n, "method": name.replace("_", "-"), "speed": speed}
        for name, values in by_method.items()
        for n, speed in enumerate(values)
    ]


def test_the_best_is_one_setting_for_all_prompts():
    rows = rows_of(default=[2.0] * 3, genai_draft_1=[4, 1, 4], genai_plain=[1, 4, 2])
    assert over_best(rows, "default", "genai") == [0.5, 2.0, 0.5]


def test_texts_of_the_default_are_compared_with_those_of_plain_decoding():
    rows = rows_of(plain=[1.0] * 3, default=[2.0] * 3, constant_2=[2.0] * 3)
    for row, text in zip(rows, "abcabdxyz", strict=True):
        row |= {"part": "1b", "text": text}
    assert differing(rows) == (1, 3)


def test_a_sweep_that_ends_while_rising_bounds_the_ratio_to_its_best():
    shared = {"default": [5], "genai_draft_1": [1], "genai_draft_2": [4]}
    falling, rising_ = (rows_of(**shared, genai_draft_10=[speed]) for speed in (2, 5))
    assert rising(falling) == "" and rising(rising_) == "genai-draft-10"
    assert to_best(falling, "default", "genai") == "1.25"
    assert to_best(rising_, "default", "genai") == "at most 1.00"


SPEEDS = {"plain": 10.0, "plain-again": 10.1, "default": 20.0, "default-not-invariant": 25.0}
SPEEDS |= {"constant-4": 25.0, "constant-8": 16.0, "genai-plain": 8.0}
SPEEDS |= {"genai-draft-2": 15.0, "genai-draft-4": 14.0}
SPEEDS |= {"genai-prompt-lookup-1": 11.0, "genai-prompt-lookup-3": 9.0}
LOADED = {
    "guidellm": {"whole": 1200, "failed": 0},
    "others": {
        "answered": {"stream": 300, "whole": 200, "hang-up": 4000, **dict.fromkeys(HOSTILE, 50)},
        "wrong": [],
        "told to come later": 7,
        "health by status": {200: 1300, 503: 2},
        "memory_mb": [300, *range(410, 510, 10)],
    },
}
PAIR_OF = {
    "tasks": "chat",
    "several-chat": "chat",
    "several-1b": "1b",
    "llama-cpp": "chat",
    "structured": "chat",
    "tools": "chat",
}


@pytest.fixture
def results():
    """Figures of every part, made up: each method has its speed everywhere."""
    options = {"column": "cpu", "properties": {"INFERENCE_PRECISION_HINT": "f32"}}
    record = Record.begin(options, {})
    one, other = ({"commit": digit * 40, "date": f"2026-11-2{digit}"} for digit in "46")
    record.code = {part: other if part == "3b" else one for part in PARTS}
    record.machine = {"name": "CPU", "cores": 2, LIMIT: "AVX2_VNNI", "instructions": []}
    record.machine["priority"] = "SCHED_RR 10"
    record.rows.append({"part": "load", "seconds": 300, **load.as_row(LOADED, 300)})
    for turn in range(16):
        about = {"turn": turn, "prompt": turn // 2, "task": ("qa", "rag")[turn // 8]}
        about |= {"heat": (0.0, 0.8)[turn % 2], "loading": 2.0, "later speed": 30.0}
        about |= {"kept": 0.01, "fresh": 0.1, "first": 0.1, "later first": 0.05}
        about |= {"seconds": 3.0, "duration": 30.0, "tokens": 64, "own": 300.0, "mapped": 100.0}
        about |= {"token": 5.0, "shapes": "none", "way": "model, 2", "texts": "greedy"}
        about |= {"differ": 0, "of": 8, "1 of one": 5.0, "1 of 8": 9.0, "form": "usual"}
        loads = {"cached": (200, 1500)[turn // 8], "requests": (4, 8)[turn % 2]}
        for part in PARTS.keys() - {"load"}:
            pair = PAIR_OF.get(part, part if part in PAIRS else "embedded")
            own = {"part": part, "pair": pair}
            if part == "busy":
                own |= {"heat": 0.0, "drafted": 8, "accepted": 3}
            elif part not in (*SINGLE.values(), "long"):
                own |= {"heat": None, **loads}
            elif part == "tasks":
                own |= {"heat": 0.0}
            elif part == "tools":
                own |= {"heat": None, "form": "calls"}
            for method, speed in SPEEDS.items():
                record.rows.append({**about, **own, "method": method, "speed": speed})
    return Results("cpu", record)


def test_a_caption_names_the_dates_and_commits_of_its_parts(results):
    assert results.measured(["1b"]) == "measured on 2026-11-24, commit 4444444444"
    assert results.measured(["1b", "3b", "none"]) == (
        "measured on 2026-11-24 to 2026-11-26, commit 4444444444, 6666666666"
    )


def written(folder, name, results, factor=1.0, **methods):
    """A file of figures in which methods are so many times as fast."""
    rows = [{**row} for row in results.record.rows]
    for row in rows:
        if "speed" in row:
            row["speed"] *= methods.get(row.get("method", "").replace("-", "_"), factor)
    replace(results.record, rows=rows).write(folder / name)
    return folder / name


def test_files_are_compared_cell_by_cell(results, tmp_path):
    old = written(tmp_path, "old.json", results)
    new = written(tmp_path, "new.json", results, default=0.9, genai_plain=0.5)
    done = run("compare-figures", old, new, main=main)
    assert done.returncode == 1, done.stderr
    lines = [line.strip("|").split("|") for line in done.stdout.splitlines() if line[:1] == "|"]
    cells = {tuple(map(str.strip, line[:3])): [c.strip() for c in line[3:]] for line in lines}
    assert cells["1b, 1b, 0.0, usual, none", "default", "speed"][1:] == [
        *("20", "18", "0.90 (0.90 to 0.90)", "1.0%", "slower")
    ]
    peer = cells["1b, 1b, 0.0, usual, none", "genai-plain", "speed"]
    assert (peer[3], peer[5]) == ("0.50 (0.50 to 0.50)", "")
    assert cells["1b, 1b, 0.0, usual, none", "plain", "speed"][3] == "1.00 (1.00 to 1.00)"
    again = run("compare-figures", old, old, main=main)
    assert again.returncode == 0
    assert "cells, 0 slower" in again.stdout


def test_every_chart_is_drawn_from_its_rows(results, tmp_path):
    passes = {f"{size} of one": 5.0 + size for size in (1, 2, 5, 8, 9)}
    for row in results.record.rows:
        row["passes"] = 32
        if row["part"] == "passes":
            row |= {"pair": "1b", "form": "invariant", **passes}
        if row.get("method") == "constant-4":
            row["method"] = "constant-7"
    written(tmp_path, "cpu.json", results)
    done = run("charts", "--figures", tmp_path, "--output", tmp_path, main=main)
    assert done.returncode == 0, done.stderr
    for name in CHARTS:
        drawn = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert results.stamp in drawn
        assert "currentColor" in drawn, "dark pages are read too"
