"""What is made of figures: the best of methods, and comparisons of files."""

from itertools import product

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.figures.results import (
    over_best,
    require_falling,
    speeds,
    speedups,
)
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.record import Record
from tests.support.command_line import run


def rows_of(**by_method):
    """A row for each speed of each method, prompt by prompt."""
    return [
        {"turn": n, "prompt": n, "method": name.replace("_", "-"), "speed": speed}
        for name, values in by_method.items()
        for n, speed in enumerate(values)
    ]


def test_a_prompt_counts_once_however_often_it_was_measured():
    rows = [
        {"turn": turn, "prompt": turn % 2, "method": name, "speed": speed * (1 + turn)}
        for turn in range(6)
        for name, speed in (("plain", 1.0), ("default", 2.0))
    ]
    assert speeds(rows, "plain") == [3.0, 4.0]
    assert speedups(rows, "default") == [2.0, 2.0]


def test_the_best_is_chosen_on_the_prompts_that_it_is_not_measured_on():
    """Each is the faster one of half of them, so that the slower one is always measured."""
    rows = rows_of(default=[2.0] * 4, genai_draft_1=[4, 1, 4, 1], genai_plain=[1, 4, 1, 4])
    assert over_best(rows, "default", "genai") == [2.0] * 4


def test_a_sweep_that_ends_while_rising_is_an_error():
    falling = rows_of(genai_draft_1=[1], genai_draft_2=[3], genai_draft_10=[2], constant_2=[1])
    require_falling(falling)
    rising = rows_of(genai_draft_1=[1], genai_draft_2=[3], genai_draft_10=[4])
    with pytest.raises(BenchmarkError, match="ends while rising, at genai-draft-10"):
        require_falling(rising)


SPEEDS = {"plain": 10.0, "plain-again": 10.1, "default": 20.0, "genai-plain": 8.0}


def written(file, **factors):
    """A file of figures of one part, made up, in which methods are so many times as fast."""
    record = Record.begin("figures", {"column": "cpu"}, {})
    about = {"part": "1b", "pair": "1b", "heat": 0.0}
    for turn, (method, speed) in product(range(16), SPEEDS.items()):
        own = {"turn": turn, "prompt": turn // 2, "method": method}
        record.rows.append({**about, **own, "speed": speed * factors.get(method, 1.0)})
    record.write(file)
    return file


def test_files_are_compared_cell_by_cell(tmp_path):
    old = written(tmp_path / "old.json")
    new = written(tmp_path / "new.json", **{"default": 0.9, "genai-plain": 0.5})
    done = run("compare-figures", old, new, main=main)
    assert done.returncode == 1, done.stderr
    lines = [line.strip("|").split("|") for line in done.stdout.splitlines() if line[:1] == "|"]
    cells = {line[1].strip(): [cell.strip() for cell in line] for line in lines}
    assert cells["default"] == [
        *("1b, 1b, 0.0", "default", "speed", "8"),
        *("20", "18", "0.90 (0.90 to 0.90)", "1.0%", "slower"),
    ]
    assert (cells["genai-plain"][6], cells["genai-plain"][8]) == ("0.50 (0.50 to 0.50)", "")
    assert cells["plain"][6] == "1.00 (1.00 to 1.00)"
    again = run("compare-figures", old, old, main=main)
    assert again.returncode == 0
    assert "cells, 0 slower" in again.stdout
