"""The laboratory's command line, and what its commands share: options, records, tables."""

import shutil
from dataclasses import replace
from functools import partial
from random import Random

import click
import openvino as ov
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.errors import OptionError
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import IR_FILE, embedded_folder
from ov_specdec.models.source import read_ir
from ov_specdec.planning.costs import FixedCurve
from ov_specdec.planning.draft_length import ConstantLength
from ov_specdec.planning.planner import Planner
from tests.benchmarks import simulation
from tests.benchmarks.__main__ import COMMANDS, benchmarks, main
from tests.benchmarks.measuring import in_turns, measure_into
from tests.benchmarks.options import Models, model_options
from tests.benchmarks.recite import add_texts
from tests.benchmarks.record import Record
from tests.benchmarks.simulated.machine import Machine, rounds_of
from tests.benchmarks.simulated.texts import MadeUp, machine_of, steady
from tests.support.command_line import run
from tests.support.kept import open_kept


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_says_what_the_commands_say(name):
    command = benchmarks.get_command(click.Context(benchmarks), name)
    assert command.get_short_help_str(limit=200) == COMMANDS[name]
    assert command.name == name


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


def test_simulated_passes_take_what_the_curve_says():
    machine = Machine(machine_of("linear", change=0.5).curve)
    text = MadeUp(steady(1.0), size=9)
    planner = Planner(FixedCurve(machine.curve))
    rounds = list(rounds_of(planner, ConstantLength(3), text, machine, Random(0)))
    seconds = 3 * 0.1 + 1.0 + 3 * 0.15
    assert [spent for _, spent in rounds] == pytest.approx([seconds + 0.5, seconds])
    assert [stats.seconds for stats, _ in rounds] == pytest.approx([seconds + 0.5, seconds])
    assert [stats.cached_tokens for stats, _ in rounds] == [101, 105]


@pytest.mark.deep
def test_a_model_recites_recorded_texts(tmp_path):
    folder = open_kept("qwen3_5_text", tmp_path / "pair").main
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
