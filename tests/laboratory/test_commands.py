"""The laboratory's commands, each on tiny models. Nothing here checks a speed."""

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.record import Record
from tests.support.command_line import run

pytestmark = pytest.mark.deep


@pytest.fixture
def measure(tiny_pair, tmp_path):
    """Runs a command with a draft that is its main model; its rows, and its table's last line."""

    def measured(name, *arguments):
        file, main_model = tmp_path / "record.json", tiny_pair[0]
        same = ("--main", main_model, "--draft", main_model, "--output", file)
        done = run(name, *same, *arguments, main=main)
        assert done.returncode == 0, done.stderr
        return Record.read(file).rows, done.stdout.splitlines()[-1].strip("| ").split(" | ")

    return measured


def test_a_model_agrees_with_itself(measure):
    rows, line = measure("agreement", "--number", "1", "--size", "6", "--told", "2,0,10000")
    assert [row["told"] for row in rows] == [2, "all it holds"]
    assert rows[1]["agrees"] == 1.0
    assert line[1] == "1.000"


def test_outputs_are_recorded(measure):
    rows, line = measure("record-outputs", "--number", "2", "--max-new-tokens", "5")
    assert line == ["code", "2", str(sum(len(row["output"]) for row in rows))]
    assert all(row["prompt"] and row["output"] for row in rows)
