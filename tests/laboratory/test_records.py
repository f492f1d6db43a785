"""The laboratory's command line, and what its commands share: options, records, tables."""

import shutil
from dataclasses import replace
from functools import partial

import click
import openvino as ov
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.errors import OptionError
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import IR_FILE, embedded_folder
from ov_specdec.models.source import read_ir
from tests.benchmarks.measuring import in_turns, measure_into
from tests.benchmarks.options import Models, model_options
from tests.benchmarks.recite import add_texts
from tests.benchmarks.record import Record
from tests.support.kept import open_kept


@click.command()
@model_options
def chosen(models):
    return models


def test_the_embedded_main_brings_its_draft_and_another_one_does_not(tiny_pair):
    ours = chosen([], standalone_mode=False)
    assert ours == Models(embedded_folder("main"), embedded_folder("draft"))
    alone = chosen(["--main", str(tiny_pair[0])], standalone_mode=False)
    assert alone == Models(tiny_pair[0])


@pytest.fixture
def record(tiny_pair):
    record = Record.begin("agreement", {"size": 1}, {"main": tiny_pair[0]})
    record.rows.append({"prompt": 0, "told": 8, "agrees": 0.5})
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


def test_a_changed_model_has_another_hash(tiny_pair, record, tmp_path):
    folder = shutil.copytree(tiny_pair[0], tmp_path / tiny_pair[0].name)
    assert Record.begin("", {}, {"main": folder}).models == record.models
    weights = folder / "openvino_model.bin"
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    assert Record.begin("", {}, {"main": folder}).models != record.models


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
        measure_into(record, in_two_turns(calls, ends_in=("c", 1)), partial(record.write, file))
    assert calls == [("a", 0), ("b", 0), ("c", 0), ("b", 1)]
    kept = Record.read(file)
    assert [(row["method"], row["turn"]) for row in kept.rows] == calls[:3]
    calls.clear()
    measure_into(kept, in_two_turns(calls), partial(kept.write, file))
    assert calls == [("b", 1), ("c", 1), ("a", 1)]
    assert len(Record.read(file).rows) == 6


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
