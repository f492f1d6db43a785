"""The laboratory's command line, and what its commands share: options, records, tables."""

import shutil
from dataclasses import replace
from functools import partial

import click
import pytest

from lab.benchmarks.measuring import measure_into
from lab.benchmarks.models import Models
from lab.benchmarks.options import model_options
from lab.benchmarks.record import Record
from ov_specdec.errors import OptionError
from ov_specdec.models.locate import embedded_folder


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
    record = Record.begin({"size": 1}, {"main": tiny_pair[0]})
    record.rows.append({"prompt": 0, "told": 8, "agrees": 0.5})
    return record


@pytest.mark.parametrize("name", ["options", "models", "versions", "machine"])
def test_a_record_of_something_else_is_not_gone_on_with(record, tmp_path, name):
    kept, now = (
        replace(record, **{name: {**getattr(record, name), "size": size}}) for size in (1, 2)
    )
    kept.require_same(kept, tmp_path)
    with pytest.raises(OptionError, match=f"other {name}: size was 1 and is 2"):
        now.require_same(kept, tmp_path)


def test_a_changed_model_has_another_hash(tiny_pair, record, tmp_path):
    folder = shutil.copytree(tiny_pair[0], tmp_path / tiny_pair[0].name)
    assert Record.begin({}, {"main": folder}).models == record.models
    weights = folder / "openvino_model.bin"
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    assert Record.begin({}, {"main": folder}).models != record.models


def in_two_turns(calls, ends_in=None):
    for turn in range(2):
        for name in ("abc", "bca")[turn]:

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
