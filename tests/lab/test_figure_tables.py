"""What is made of figures: tables, sentences and charts of pages, and comparisons of files."""

from lab.benchmarks.__main__ import main
from lab.benchmarks.charts import CHARTS
from lab.benchmarks.figures.results import FOLDER, Results, differing, merged, over_best, rising
from lab.benchmarks.record import Record, select
from lab.docs.figure_tables import TABLES, show, to_best
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


def test_names_of_several_columns_keep_their_order():
    assert merged([["1 B", "chat"], ["real", "chat", "last"], ["3 B"]]) == [
        *("3 B", "real", "1 B", "chat", "last")
    ]


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


def test_a_table_has_the_columns_of_figures_side_by_side():
    def results(name, **speeds):
        rows = rows_of(plain=[1.0], default=[2.0], suffix=[3.0])
        rows += [{**row, "turn": 9, "prompt": 9, "speed": speeds["edits"]} for row in rows[1:2]]
        rows += [{**row, "turn": 9, "prompt": 9} for row in rows[:1]]
        for row in rows:
            row |= {"part": "real", "heat": 0.0}
            row["form"] = "edits" if row["turn"] else "questions"
        return Results(name, Record({}, {}, {}, {}, rows=rows))

    columns = [results("one", edits=4.0), results("two", edits=5.0)]
    head, _, *lines = show(TABLES["defaults"], columns).partition("\n\n")[0].splitlines()
    assert head == (
        "|  | default / plain, `one` | default / plain, `two` "
        "| suffix drafts / plain, `one` | suffix drafts / plain, `two` |"
    )
    assert lines == [
        "| real pair, questions | 2.00 | 2.00 | 3.00 | 3.00 |",
        "| real pair, edits | 4.00 | 5.00 |  |  |",
    ]
    assert show(TABLES["long"], columns) == ""


def test_files_are_compared_cell_by_cell(tmp_path):
    old, new = FOLDER / f"{Results.all()[0].name}.json", tmp_path / "new.json"
    record = Record.read(old)
    for row in select(record.rows, part="1b"):
        row["speed"] *= {"default": 0.5, "genai-plain": 0.5}.get(row["method"], 1.0)
    record.write(new)
    done = run("compare-figures", old, new, main=main)
    assert done.returncode == 1, done.stderr
    lines = [[c.strip() for c in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    cells = {tuple(line[:3]): line[6:] for line in lines}
    for method, ratio, verdict in (("default", "0.50", "slower"), ("genai-plain", "0.50", "")):
        found = cells["1b, 1b, 0.0", method, "speed"]
        assert (found[0][:4], found[-1]) == (ratio, verdict)
    assert cells["1b, 1b, 0.0", "plain", "speed"][0][:4] == "1.00"
    again = run("compare-figures", old, old, main=main)
    assert again.returncode == 0
    assert "cells, 0 slower" in again.stdout


def test_every_chart_is_drawn_from_its_rows(tmp_path):
    done = run("charts", "--output", tmp_path, main=main)
    assert done.returncode == 0, done.stderr
    assert {file.stem for file in tmp_path.iterdir()} == {*CHARTS}
    for file in tmp_path.iterdir():
        drawn = file.read_text(encoding="utf-8")
        _, can_be_drawn, *_ = CHARTS[file.stem]
        for results in Results.all():
            assert (results.stamp in drawn) == can_be_drawn(results)
        assert "currentColor" in drawn, "dark pages are read too"
