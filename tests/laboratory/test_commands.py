"""The laboratory's commands, each on tiny models. Nothing here checks a speed."""

import pytest

from ov_specdec.planning.costs import NOMINAL
from tests.benchmarks.__main__ import main
from tests.benchmarks.record import Record
from tests.benchmarks.replay import foresight, total
from tests.benchmarks.replay import run as run_replayed
from tests.benchmarks.simulated.machine import Machine
from tests.benchmarks.simulated.recorded import RecordedModel, output_of
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


def test_drafts_are_compared_in_turns_that_begin_with_each(measure, tiny_pair):
    more = ("--other", tiny_pair[1], "--number", "2", "--requests", "1,2", "--turns", "2")
    rows, line = measure("compare-drafts", *more, "--size", "8")
    assert [row["method"] for row in rows[3:6]] == ["draft", "other", "plain"]
    assert [len(row["texts"]) for row in rows] == [1] * 6 + [2] * 6
    assert line[0] == "2"
    assert line[-1] == "12 of 12"


def test_outputs_are_recorded_and_replayed(measure, tmp_path):
    """A model's own drafts are all accepted; the one that knows the output beats the others."""
    more = ("--max-new-tokens", "30", "--ignore-eos", "--drafts", "4")
    rows, line = measure("record-outputs", "--number", "2", *more)
    assert line == ["code", "2", "60", "50"]
    assert all(agree == 4 for row in rows for agree, _ in row["drafts"])
    drafters, file = "prompt-lookup,suffix,suffix with earlier,best match,model", tmp_path / "again"
    recorded = ("replay", tmp_path / "record.json", "--drafters", drafters, "--output", file)
    assert run(*recorded, main=main).returncode == 0
    found = {row["drafter"]: row for row in Record.read(file).rows}
    assert list(found) == drafters.split(",")
    assert all(0 < row["to foresight"] <= 1 for row in found.values())
    assert found["model"]["best"] >= 4  # as many as were recorded, all of them accepted
    assert found["model"]["to plain"] > 1.5


SURE = {"task": "a", "prompt": [1], "output": list(range(64)), "drafts": [(15, [0.9] * 15)] * 48}


def test_seconds_of_replayed_rounds_are_those_of_the_machine():
    """A pass over 5 tokens and 4 steps of the draft model; nobody knew better with length 15."""
    times = run_replayed([SURE], "model", Machine(NOMINAL), 4)[0]
    assert [done for done, _ in times] == [*range(1, 49, 5)]
    assert times[1][1] == pytest.approx(1.4 + 4 * 0.1)
    best = foresight(output_of(SURE, (RecordedModel(SURE),)), NOMINAL)
    always = run_replayed([SURE], "model", Machine(NOMINAL), 15)
    assert best[1] == pytest.approx(total(always), rel=0.1)
    assert best[1] <= total(always)
