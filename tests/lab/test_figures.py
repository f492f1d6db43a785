"""Figures: how they are measured and kept."""

import json
import os
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import median

import psutil
import pytest

from lab.benchmarks import priority
from lab.benchmarks.__main__ import main
from lab.benchmarks.figures import busy, command, processes, requests, tools
from lab.benchmarks.figures.given import SETS, Given, embedded
from lab.benchmarks.figures.parts import Part
from lab.benchmarks.figures.results import speedups
from lab.benchmarks.figures.together import behind_contexts, together
from lab.benchmarks.models import Models
from lab.benchmarks.peers.asks import BenchmarkError
from lab.benchmarks.record import Record, select
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.command_line import run


@pytest.fixture
def given(tiny_pair, monkeypatch):
    """A tiny pair in the place of the embedded one."""
    monkeypatch.setattr(Given, "pairs", {"embedded": Models(*tiny_pair)})
    monkeypatch.setitem(SETS, "embedded", "code")
    return Given()


@pytest.fixture
def parts(monkeypatch):
    """Two parts that measure in no time, the second of which may fail; and what they measured."""
    calls = []

    def measure(_, name, fails=False):
        for turn in range(2):

            def row(turn=turn):
                if fails:
                    raise BenchmarkError("no such package")
                calls.append((name, turn))
                return {"speed": 2.0}

            yield {"turn": turn, "prompt": turn, "method": "plain"}, row

    def replaced(fails):
        fakes = {
            "embedded": Part(1, "embedded", "", lambda given: measure(given, "embedded")),
            "fresh": Part(1, "embedded", "", lambda given: measure(given, "fresh", fails)),
            "tasks": Part(1, "chat", "", lambda given: measure(given, "tasks")),
        }
        monkeypatch.setattr(command, "PARTS", fakes)
        monkeypatch.setattr(priority, "take", lambda: priority.USUAL)  # this process is the tests'
        return calls

    return replaced


def figures(*arguments, only="embedded,fresh,tasks"):
    return run("figures", "native", "--only", only, *arguments, main=main)


def test_parts_are_measured_once_and_kept_in_one_file(parts, tmp_path):
    calls, file = parts(fails=False), tmp_path / "new" / "cpu.json"
    done = figures("--output", file)
    assert (done.returncode, done.stdout) == (0, f"{file}\n"), done.stderr
    assert "tasks: left out, for there is no chat" in done.stderr
    assert calls == [("embedded", 0), ("embedded", 1), ("fresh", 0), ("fresh", 1)]
    record = Record.read(file)
    assert [(row["part"], row["turn"]) for row in record.rows] == calls
    assert record.options["column"] == "native"
    assert record.machine["priority"] == "usual"
    assert figures("--output", file, only="embedded").returncode == 0
    assert len(calls) == 4


def test_a_part_that_fails_leaves_the_others(parts, tmp_path):
    parts(fails=True)
    done = figures("--output", tmp_path / "cpu.json")
    assert done.returncode == 2
    assert "fresh: no such package" in done.stderr
    assert "not measured: fresh" in done.stderr
    assert len(Record.read(tmp_path / "cpu.json").rows) == 2


def test_a_part_that_another_commit_measured_is_measured_anew(parts, tmp_path):
    calls, file = parts(fails=False), tmp_path / "cpu.json"
    assert figures("--output", file).returncode == 0
    kept = json.loads(file.read_text())
    kept["code"]["fresh"] = {"commit": "0", "clean": True}
    file.write_text(json.dumps(kept))
    assert figures("--output", file, only="embedded").returncode == 0
    assert len(calls) == 4
    assert figures("--output", file).returncode == 0
    assert calls[4:] == [("fresh", 0), ("fresh", 1)]
    record = Record.read(file)
    assert len(record.rows) == 4
    assert record.code["fresh"]["commit"] == record.code["embedded"]["commit"]
    assert record.code["fresh"]["date"] > "2026"


def test_a_run_finds_nothing_in_its_cache_folder(parts, tmp_path, monkeypatch):
    calls, home = [], str(tmp_path / "home")

    def measure(_):
        folder = Path(os.environ["XDG_CACHE_HOME"])
        calls.append((str(folder), [*folder.iterdir()]))
        yield {"turn": 0, "method": "plain"}, lambda: {"speed": 2.0}

    parts(fails=False)
    monkeypatch.setattr(command, "PARTS", {"embedded": Part(1, "embedded", "", measure)})
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    for number in range(2):
        done = figures("--output", tmp_path / f"{number}.json", only="embedded")
        assert done.returncode == 0, done.stderr
    assert [found for _, found in calls] == [[], []]
    assert len({home, *(folder for folder, _ in calls)}) == 3
    assert os.environ["XDG_CACHE_HOME"] == home


def measured(measurements, number):
    """So many rows of a part, and then its end."""
    with closing(measurements):
        return [{**key, **measure()} for key, measure in islice(measurements, number)]


@pytest.mark.deep
def test_single_requests_take_turns_over_prompts_and_temperatures(given):
    methods = ("plain", "plain-again", "constant-2")
    rows = measured(requests.requests(given, "embedded", methods, (0.0, 0.8), 4, 1), 12)
    assert [(row["prompt"], row["heat"]) for row in rows[::3]] == [
        *((0, 0.0), (0, 0.8)),
        *((1, 0.0), (1, 0.8)),
    ]
    assert all({row["method"] for row in rows[n : n + 3]} == {*methods} for n in (0, 3, 6, 9))
    assert [row["turn"] for row in rows[::3]] == [0, 1, 2, 3]
    assert all(row["tokens"] == 4 and row["speed"] > 0 and row["first"] > 0 for row in rows)
    assert [row["method"] for row in rows if "drafted" in row] == ["constant-2"] * 4
    greedy = [rows[:3], rows[6:9]]
    assert all(len({row["text"] for row in turn}) == 1 for turn in greedy)


def test_tasks_that_are_a_form_are_compared_apart_and_long_prompts_have_their_length(given):
    arguments = (given, "embedded", ("plain",))
    rows = measured(requests.requests(*arguments, (0.0,), 4, 1, field="form"), 1)
    assert (rows[0]["form"], "task" in rows[0]) == ("code", False)
    rows = measured(requests.long_prompts(*arguments, (90, 120), 4, 2), 4)
    assert [(row["cached"], row["prompt"]) for row in rows] == [
        (90, 0),
        (120, 0),
        (90, 1),
        (120, 1),
    ]
    assert all(row["tokens"] == 4 and row["first"] > 0 for row in rows)


def test_pairs_are_those_whose_models_are_given(tmp_path):
    assert [*Given().pairs] == ["embedded"]
    given = Given({**embedded(), "real main": tmp_path, "expanded": tmp_path})
    assert [*given.pairs] == ["embedded", "1b-small-draft"]
    given = Given({**given.folders, "real draft": tmp_path / "draft"})
    assert given.pairs["real"] == Models(tmp_path, tmp_path / "draft")


@pytest.mark.deep
def test_escaped_copies_gain_in_replayed_edits(agent_model):
    rows = measured(tools.replayed(load_tokenizer(agent_model)), None)
    for machine in tools.CURVES:
        own = select(rows, form=machine)
        assert len(own) == 6 * len(tools.EDITS)
        assert median(speedups(own, "default", "without-copies")) > 1.3
        assert median(speedups(own, "default")) > 2


@pytest.mark.deep
def test_calls_of_a_model_that_knows_tools_are_on_prompts_that_are_kept(agent_model, monkeypatch):
    monkeypatch.setattr(Given, "pairs", {"real": Models(agent_model)})
    rows = measured(tools.own_calls(Given(), "real", ("shell",), tokens=20), 6)
    assert [(row["task"], row["turn"]) for row in rows] == [("shell", 0)] * 3 + [("shell", 1)] * 3
    assert all(row["speed"] > 0 for row in rows)


@pytest.mark.deep
def test_all_calls_are_measured_once_by_each_method(agent_model, monkeypatch):
    monkeypatch.setattr(Given, "pairs", {"chat": Models(agent_model)})
    rows = measured(tools.tools(Given(), tokens=40), None)
    calls = select(rows, form="calls")
    assert len(calls) == 24 * len(tools.LENGTHS)
    assert [row["task"] for row in calls[:12:3]] == ["edits", "searches", "shell", "chains"]
    assert all(row["speed"] > 0 for row in calls)
    assert all(row["forced"] == 0 for row in select(calls, method="plain"))


@pytest.mark.deep
def test_several_requests_are_measured_in_processes(given):
    methods = ("plain", "default", "default-not-invariant")
    rows = measured(together(given, "embedded", methods, (70,), (1, 2), 4, 1), 6)
    assert [(row["cached"], row["requests"]) for row in rows[::3]] == [(70, 1), (70, 2)]
    assert [row["prompt"] for row in rows] == [0] * 6
    assert all(row["speed"] > 0 and row["first"] > 0 for row in rows)
    shared = together(given, "embedded", ("default",), (70,), (2,), 4, 1, own=16, step=0)
    [row] = measured(shared, 1)
    assert row["speed"] > 0


def test_contexts_are_shared_or_apart_and_ends_are_others():
    text, ends = [*range(100)], [[-1, -2], [-3, -4], [-5, -6]]
    apart = behind_contexts([text, text[10:]], ends, 5, first=1)
    assert apart == [[0, 1, 2, -3, -4], [10, 11, 12, -5, -6]]
    assert behind_contexts([text, text], ends, 4, first=2) == [[0, 1, -5, -6], [0, 1, -1, -2]]


@pytest.mark.deep
def test_a_fresh_process_runs_the_default_and_the_fastest_peer(given, monkeypatch):
    monkeypatch.setattr(processes, "SETTLED", 0.0)
    arguments = {"embedded": "embedded"}, 4, 1
    with pytest.raises(BenchmarkError, match="is unknown: measure embedded first"):
        measured(processes.fresh(given, *arguments), 1)
    for method, speed in (("genai-plain", 1.0), ("genai-draft-2", 3.0), ("genai-draft-4", 2.0)):
        row = {"part": "embedded", "heat": 0.0, "prompt": 0, "method": method, "speed": speed}
        given.rows.append(row)
    monkeypatch.setattr(processes, "in_turns", lambda names, _: names)
    (row,) = measured(processes.fresh(given, *arguments), 1)
    assert row["method"] == "default"
    assert min(row[name] for name in ("speed", "first", "later speed")) > 0
    keys = [key["method"] for key, _ in processes.fresh(given, *arguments)]
    assert keys == ["default", "genai-plain", "genai-draft-2"]


@pytest.mark.deep
def test_beside_busy_loops_open_prompts_are_measured_and_the_loops_end(given, monkeypatch):
    monkeypatch.setattr(busy, "OPEN", ("code",))
    arguments = ("embedded",), ("plain", "default"), 4
    with closing(busy.busy(given, *arguments)) as measurements:
        key, measure = next(measurements)
        assert (key["task"], measure()["tokens"]) == ("code", 4)
        # Of a process that has just begun no command is known yet.
        loops = [each for each in psutil.Process().children() if busy.LOOP in each.cmdline()]
        assert len(loops) == os.cpu_count()
    assert not any(each.is_running() for each in loops)
