"""The laboratory's commands, each on tiny models. Nothing here checks a speed."""

import json

import pytest

from lab.benchmarks.__main__ import main
from lab.benchmarks.replay import foresight, total
from lab.benchmarks.replay import run as run_replayed
from lab.benchmarks.simulation import RecordedModel, output_of
from ov_specdec.planning.costs import NOMINAL
from tests.support.command_line import run

pytestmark = pytest.mark.deep


@pytest.fixture
def measure(tiny_pair):
    """Runs a command with a draft that is its main model; the cells of its table's last line."""

    def measured(name, *arguments):
        same = ("--main", tiny_pair[0], "--draft", tiny_pair[0])
        done = run(name, *same, *arguments, main=main)
        assert done.returncode == 0, done.stderr
        return done.stdout.rpartition("\n| ")[2].strip(" |\n").split(" | ")

    return measured


def test_a_model_agrees_with_itself(measure):
    assert measure("agreement", "--number", "1", "--size", "6", "--told", "2,0,10000")[1] == "1.000"


def test_outputs_are_recorded_and_replayed(measure, tmp_path):
    """A model's own drafts are all accepted."""
    file = tmp_path / "outputs.jsonl"
    more = ("--max-new-tokens", "30", "--ignore-eos", "--drafts", "4", "--output", file)
    measure("record-outputs", "--number", "2", *more)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["task"], len(row["output"]), row["right"]) for row in rows] == [
        ("code", 30, [4] * 25)
    ] * 2
    drafters = "suffix,suffix with earlier,model"
    done = run("replay", file, "--drafters", drafters, main=main)
    head, _, *lines = (line.strip("| ").split(" | ") for line in done.stdout.splitlines())
    found = {line[1]: dict(zip(head, line, strict=True)) for line in lines}
    assert list(found) == drafters.split(",")
    assert all(0 < float(row["to foresight"]) <= 1 for row in found.values())
    assert float(found["model"]["best"]) >= 4  # as many as were recorded, all of them accepted
    assert float(found["model"]["to plain"]) > 1.5
    assert 0.5 < float(found["model"]["learned to best"]) < 1.2  # in texts of 30 tokens


SURE = {"task": "a", "prompt": [1], "output": list(range(64)), "right": [15] * 48, "most": 15}


def test_seconds_of_replayed_rounds_are_those_of_the_machine():
    """A pass over 5 tokens and 4 steps of the draft model; nobody knew better with length 15."""
    times = run_replayed([SURE], "model", NOMINAL, 4)[0]
    assert [done for done, _ in times] == [*range(1, 49, 5)]
    assert times[1][1] == pytest.approx(1.4 + 4 * 0.1 + 0.01)  # the first step feeds two
    best = foresight(output_of(SURE, (RecordedModel(SURE),)), NOMINAL)
    always = run_replayed([SURE], "model", NOMINAL, 15)
    assert best[1] == pytest.approx(total(always), rel=0.1)
    assert best[1] <= total(always)
