"""The laboratory's command line, and what its commands share: options, records, tables."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from random import Random

import click
import openvino as ov
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.errors import OptionError
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.locate import IR_FILE, embedded_folder
from ov_specdec.loading.source import read_ir
from ov_specdec.planning.costs import FixedCurve
from ov_specdec.planning.draft_length import ConstantLength
from ov_specdec.planning.planner import Planner
from tests.benchmarks import simulation
from tests.benchmarks.__main__ import COMMANDS, benchmarks, main
from tests.benchmarks.measuring import in_turns, measure_into
from tests.benchmarks.options import Models, model_options, several
from tests.benchmarks.recite import add_texts
from tests.benchmarks.record import Record
from tests.benchmarks.simulated.machine import Machine, rounds_of
from tests.benchmarks.simulated.texts import MadeUp, machine_of, steady
from tests.benchmarks.tables import (
    across,
    average,
    extremes,
    in_quartiles,
    interval,
    middle,
    ratios,
    show,
    table,
    value,
)
from tests.benchmarks.texts import Prompts
from tests.command_line import run
from tests.tiny_hybrid import open_hybrid


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_says_what_the_commands_say(name):
    command = benchmarks.get_command(click.Context(benchmarks), name)
    assert command.get_short_help_str(limit=200) == COMMANDS[name]
    assert command.name == name


def test_help_lists_the_commands():
    done = run("--help", main=main)
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_an_unknown_command_is_one_line_and_exit_code_two():
    done = run("nothing", main=main)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no command 'nothing'")
    assert len(done.stderr.splitlines()) == 1


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "tests.benchmarks", "expand", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: python -m tests.benchmarks expand [OPTIONS] [MODEL]\n")


@pytest.mark.parametrize(
    ("typed", "values"), [((), (2, 4)), (("--lengths", "3, 5"), (3, 5)), (("--lengths", ""), ())]
)
def test_several_values_are_separated_by_commas(typed, values):
    assert lengths(list(typed), standalone_mode=False) == values


@pytest.mark.parametrize("typed", ["3,x", "3,7"])
def test_values_that_are_none_of_those_asked_for_are_refused(typed):
    with pytest.raises(click.BadParameter):
        lengths(["--lengths", typed], standalone_mode=False)


@click.command()
@several("--lengths", int, (2, 4), says="Of drafts.", among=range(2, 6))
def lengths(lengths):
    return lengths


@click.command()
@model_options
def chosen(models):
    return models


def test_the_embedded_main_brings_its_draft_and_another_one_does_not(tiny_pair):
    ours = chosen([], standalone_mode=False)
    assert ours == Models(embedded_folder("main"), embedded_folder("draft"))
    alone = chosen(["--main", str(tiny_pair[0]), "--property", "A=b=c"], standalone_mode=False)
    assert alone == Models(tiny_pair[0], properties={"A": "b=c"})
    with pytest.raises(click.BadParameter, match="KEY=VALUE"):
        chosen(["--property", "A"], standalone_mode=False)


def test_the_tasks_of_a_file_come_in_turns(tmp_path):
    file = tmp_path / "tasks.jsonl"
    given = [("qa", "1"), ("qa", "2"), ("qa", "3"), ("chat", "4")]
    lines = [json.dumps({"task": task, "prompt": prompt}) for task, prompt in given]
    file.write_text("\n".join(lines) + "\n")
    read = Prompts.read(str(file))
    assert read.tasks == (("qa", "1"), ("chat", "4"), ("qa", "2"), ("qa", "3"))
    assert Prompts.read(str(file), 2).tasks == (("qa", "1"), ("qa", "3"))
    before = read.described()
    file.write_text("\n".join(lines[1:]) + "\n")
    after = Prompts.read(str(file)).described()
    assert before["name"] == after["name"]
    assert before["digest"] != after["digest"]


@pytest.fixture
def record(tiny_pair):
    record = Record.begin("simulation", {"seeds": 1}, {"main": tiny_pair[0]})
    row = {"curve": "flat", "change": 0.5, "accepted": "0.8", "to best": 1.25, "best": 4}
    record.rows.append(row)
    return record


def test_a_record_is_read_as_it_was_written(record, tmp_path):
    record.write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == record
    empty = replace(record, rows=[])
    empty.write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == empty


def test_a_record_says_what_was_measured_and_with_what(record):
    assert record.code["commit"] is None or len(record.code["commit"]) == 40
    assert {"openvino", "openvino-genai", "transformers", "numpy", "torch"} < set(record.versions)
    assert record.versions["openvino"].startswith("2026")
    assert record.machine["cores"] >= 1
    assert record.machine["name"] in record.summary()
    assert len(record.models["main"]["digest"]) == 64


def test_a_record_is_gone_on_with_where_nothing_has_changed(record, tmp_path):
    file, new = tmp_path / "record.json", replace(record, rows=[], date="later")
    assert new.resumed(file) is new
    record.write(file)
    assert new.resumed(file) == record


@pytest.mark.parametrize("name", ["options", "models", "code", "versions", "machine"])
def test_a_record_of_something_else_is_not_gone_on_with(record, tmp_path, name):
    record.write(tmp_path / "record.json")
    changed = replace(record, **{name: {**getattr(record, name), "of late": 1}})
    with pytest.raises(OptionError, match=f"other {name}: of late was None and is 1"):
        changed.resumed(tmp_path / "record.json")


def test_a_changed_model_is_noticed(tiny_pair, record, tmp_path):
    folder = shutil.copytree(tiny_pair[0], tmp_path / tiny_pair[0].name)
    again = Record.begin("simulation", {"seeds": 1}, {"main": folder})
    assert again.models == record.models
    record.write(tmp_path / "record.json")
    weights = folder / "openvino_model.bin"
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    again = Record.begin("simulation", {"seeds": 1}, {"main": folder})
    with pytest.raises(OptionError, match="other models: main was"):
        again.resumed(tmp_path / "record.json")


def test_a_record_of_another_command_is_refused(record, tmp_path):
    record.write(tmp_path / "record.json")
    with pytest.raises(OptionError, match="is a record of simulation: name one of speed"):
        Record.read(tmp_path / "record.json", "speed")
    with pytest.raises(OptionError, match="is a record of simulation"):
        replace(record, command="speed").resumed(tmp_path / "record.json")


@pytest.mark.parametrize("content", [None, "", "[1]", '{"command": "speed"}', "{'"])
def test_what_is_no_record_is_refused(tmp_path, content):
    file = tmp_path / "record.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(OptionError, match="is no record"):
        Record.read(file)


def test_records_that_were_kept_are_shown_as_at_first(tmp_path):
    options = ("--curves", "flat", "--changes", "0.3", "--sequences", "", "--seeds", "1")
    first = run("simulation", *options, "--output", tmp_path / "record.json", main=main)
    assert first.returncode == 0, first.stderr
    assert "| flat | 0.3 | " in first.stdout
    again = run("table", tmp_path / "record.json", tmp_path / "record.json", main=main)
    assert again.stdout == f"{first.stdout}\n{first.stdout}"
    refused = run("replay", tmp_path / "record.json", main=main)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is a record of simulation: name one of record-outputs" in refused.stderr


def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    options = ("simulation", "--curves", "flat", "--changes", "0", "--sequences", "2")
    options = (*options, "--output", tmp_path / "record.json")
    calls = []

    def compare(*arguments):
        if len(calls) == 3:
            raise OptionError("no more")
        calls.append(arguments)
        return {"to best": 1.0, "to plain": 2.0, "best": len(calls)}

    monkeypatch.setattr(simulation.texts, "compare", compare)
    monkeypatch.setattr(simulation.shared, "compare", compare)
    assert run(*options, main=main).returncode == 2
    kept = Record.read(tmp_path / "record.json")
    assert [row["best"] for row in kept.rows] == [1, 2, 3]
    calls.append("another")
    done = run(*options, main=main)
    assert done.returncode == 0, done.stderr
    rows = Record.read(tmp_path / "record.json").rows
    assert rows[:3] == kept.rows
    assert len(rows) == len(calls) - 1
    keys = {(row.get("change"), row.get("sequences"), row["accepted"]) for row in rows}
    assert len(keys) == len(rows)


def in_two_turns(calls, ends_in=None):
    for turn in range(2):
        for name in in_turns(["a", "b", "c"], turn):

            def measure(name=name, turn=turn):
                if (name, turn) == ends_in:
                    raise KeyboardInterrupt
                calls.append((name, turn))
                return {"seconds": 1.0}

            yield {"turn": turn, "method": name}, measure


def test_a_turn_that_was_interrupted_is_measured_anew(record, tmp_path):
    """Its methods are compared with each other, and so must be neighbours in time."""
    record.rows.clear()
    file, calls = tmp_path / "record.json", []
    with pytest.raises(KeyboardInterrupt):
        measure_into(record, in_two_turns(calls, ends_in=("c", 1)), partial(record.write, file), 0)
    assert calls == [("a", 0), ("b", 0), ("c", 0), ("b", 1)]
    kept = Record.read(file)
    assert [(row["method"], row["turn"]) for row in kept.rows] == calls[:3]
    calls.clear()
    measure_into(kept, in_two_turns(calls), partial(kept.write, file), 0)
    assert calls == [("b", 1), ("c", 1), ("a", 1)]
    assert len(Record.read(file).rows) == 6


def test_when_the_time_is_up_the_turn_is_finished(record, tmp_path):
    record.rows.clear()
    calls = []
    write = partial(record.write, tmp_path / "record.json")
    measure_into(record, in_two_turns(calls), write, 1e-9)
    assert calls == []
    measure_into(record, in_two_turns(calls), write, 1e9)
    assert len(calls) == 6


def test_simulated_passes_take_what_the_curve_says():
    machine = Machine(machine_of("linear", change=0.5).curve)
    text = MadeUp(steady(1.0), size=9)
    planner = Planner(FixedCurve(machine.curve))
    rounds = list(rounds_of(planner, ConstantLength(3), text, machine, Random(0)))
    seconds = 3 * 0.1 + 1.0 + 3 * 0.15
    assert [spent for _, spent in rounds] == pytest.approx([seconds + 0.5, seconds])
    assert [stats.seconds for stats, _ in rounds] == pytest.approx([seconds + 0.5, seconds])
    assert [stats.cached_tokens for stats, _ in rounds] == [101, 105]


ROWS = [
    {"task": "a", "method": "x", "turn": 0, "speed": 2.0},
    {"task": "a", "method": "y", "turn": 0, "speed": 4.0},
    {"task": "b", "method": "x", "turn": 1, "speed": 3.0},
    {"task": "a", "method": "x", "turn": 2, "speed": 4.0},
    {"task": "a", "method": "y", "turn": 3, "speed": None},
]


def test_rows_that_are_alike_make_a_line():
    assert table(ROWS, ["task"], across(ROWS, "method", average("speed"))).splitlines() == [
        "| task | x | y |",
        "| --- | --- | --- |",
        "| a | 3.00 | 4.00 |",
        "| b | 3.00 |  |",
    ]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (average("speed", ".1f"), "3.3"),
        (middle("speed", ".0f", 100), "400"),
        (extremes("speed"), "2.00 to 4.00"),
        (value("speed"), ""),
        (value("turn", "03"), "003"),
    ],
)
def test_cells_show_figures_of_the_rows_that_have_them(cell, shown):
    assert cell(select_a()) == shown


def select_a():
    return [row for row in ROWS if row["task"] == "a"]


def test_ratios_are_of_the_turns_that_both_had():
    assert ratios(ROWS, "y", "x", "speed") == [2.0]
    assert ratios(ROWS, "x", "y", "speed") == [0.5]


def test_figures_are_shown_with_their_spread():
    assert in_quartiles([1.0, 2.0, 3.0]) == "2.00 (1.00 to 3.00)"
    assert in_quartiles([1.5]) == "1.50 (1.50 to 1.50)"
    assert interval([1.5] * 4) == "1.500 (1.500 to 1.500), 4 pairs"
    wide = interval([float(n) for n in range(1, 42)])
    assert wide.startswith("21.000 (")
    low, high = map(float, wide.partition("(")[2].partition(")")[0].split(" to "))
    assert 13 <= low <= 17  # ranks 15 and 27, by the binomial distribution
    assert 25 <= high <= 29


def test_a_record_without_rows_has_no_table(record):
    assert "| 1.250 @4 |" in show(record)
    record.rows.clear()
    assert show(record) == record.summary()


def test_a_model_recites_recorded_texts(tmp_path):
    folder = open_hybrid("qwen3_5_text", tmp_path / "pair").main
    texts = [
        {"prompt": [5, 6, 7, 8], "output": [9, 250, 11, 12, 13]},
        {"prompt": [40, 41], "output": [42, 43, 9, 45, 46, 250]},  # 9 in the place of the other's 9
    ]
    model = read_ir(ModelFolder.read(folder))
    add_texts(model, texts)
    ov.save_model(model, tmp_path / "pair" / "draft" / IR_FILE, compress_to_fp16=False)
    with SpeculativePipeline(tmp_path / "pair" / "draft", drafter="suffix") as pipeline:
        for text, expected in zip(texts, ([9, 250, 11, 12, 13], [42, 43, 9, 250, 11]), strict=True):
            result = pipeline.generate(text["prompt"], max_new_tokens=5, ignore_eos=True)
            assert result.token_ids == expected
