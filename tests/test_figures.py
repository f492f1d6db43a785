"""Figures: how they are measured and kept, and the tables and charts made of them."""

import json
from contextlib import closing
from dataclasses import replace
from itertools import islice

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.charts import CHARTS
from tests.benchmarks.figures import alone, command, load, speech, workers
from tests.benchmarks.figures.given import Given
from tests.benchmarks.figures.in_process import InProcess, compact
from tests.benchmarks.figures.invariance import invariance
from tests.benchmarks.figures.parts import PARTS, Part
from tests.benchmarks.figures.results import Results
from tests.benchmarks.options import Models
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.record import Record
from tests.command_line import run
from tests.figure_tables import TABLES, filled
from tests.load.beside import HOSTILE


@pytest.fixture
def given(tiny_pair, tmp_path, monkeypatch):
    """A tiny pair in the place of the embedded one."""
    pairs = {"embedded": Models(*tiny_pair)}
    monkeypatch.setattr(Given, "pairs", pairs)
    return Given(scratch=str(tmp_path))


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

            yield {"turn": turn, "method": "plain"}, row

    def replaced(fails):
        fakes = {
            "embedded": Part(1, "embedded", lambda given: measure(given, "embedded")),
            "processes": Part(1, "embedded", lambda given: measure(given, "processes", fails)),
            "tasks": Part(1, "chat", lambda given: measure(given, "tasks")),
        }
        monkeypatch.setattr(command, "PARTS", fakes)
        return calls

    return replaced


def figures(*arguments, only="embedded,processes,tasks"):
    return run("figures", "--only", only, *arguments, main=main)


def test_parts_are_measured_once_and_kept_in_one_file(parts, tmp_path):
    calls, file = parts(fails=False), tmp_path / "new" / "cpu.json"
    done = figures("--output", file)
    assert (done.returncode, done.stdout) == (0, f"{file}\n"), done.stderr
    assert "tasks: left out, for --chat is not given" in done.stderr
    assert calls == [("embedded", 0), ("embedded", 1), ("processes", 0), ("processes", 1)]
    rows = Record.read(file, "figures").rows
    assert [(row["part"], row["turn"]) for row in rows] == calls
    assert figures("--output", file, only="embedded").returncode == 0
    assert len(calls) == 4


def test_a_part_that_fails_leaves_the_others(parts, tmp_path):
    parts(fails=True)
    done = figures("--output", tmp_path / "cpu.json")
    assert done.returncode == 2
    assert "processes: no such package" in done.stderr
    assert "not measured: processes" in done.stderr
    assert len(Record.read(tmp_path / "cpu.json").rows) == 2


def test_no_time_measures_nothing(parts, tmp_path):
    calls = parts(fails=False)
    done = figures("--output", tmp_path / "cpu.json", "--minutes", "0")
    assert (done.returncode, calls) == (0, [])
    assert "embedded: left out, for the time is up" in done.stderr


def test_figures_of_another_commit_are_not_gone_on_with(parts, tmp_path):
    parts(fails=False)
    file = tmp_path / "cpu.json"
    assert figures("--output", file).returncode == 0
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "code": {"commit": "0", "clean": True}}))
    done = figures("--output", file)
    assert done.returncode == 2
    assert "was made with other code: commit was 0" in done.stderr


def test_models_are_added_to_a_file_but_not_exchanged(tmp_path):
    record = Record.begin("figures", {}, {})
    record.models = {"main": {"name": "m", "digest": "1"}}
    record.write(tmp_path / "cpu.json")
    more = replace(record, models={"chat": {"name": "c", "digest": "2"}})
    assert set(command.resumed(more, tmp_path / "cpu.json").models) == {"main", "chat"}
    other = replace(record, models={"main": {"name": "m", "digest": "3"}})
    with pytest.raises(command.SpecdecError, match="other models"):
        command.resumed(other, tmp_path / "cpu.json")


def test_a_processor_is_another_one_with_fewer_instructions():
    record = Record.begin("figures", {}, {})
    record.machine |= {"name": "AMD EPYC", "instructions": ["avx2", "avx512f", "avx512_vnni"]}
    record.machine["ONEDNN_MAX_CPU_ISA"] = None
    assert command.processor(record) == "amd-epyc-avx512-vnni"
    record.machine["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    assert command.processor(record) == "amd-epyc-limited-to-avx2"


def test_methods_in_one_process_decode_as_their_names_say(given):
    names = ("plain", "adaptive", "constant-2", "suffix", "genai-plain", "genai-draft-2")
    with (
        given.setup("embedded") as setup,
        InProcess(given.pairs["embedded"], setup, names) as methods,
    ):
        methods.warm_up(names, [5, 6, 7])
        rows = {name: methods.run(name, [5, 6, 7], 8, 0.0) for name in names}
        drawn = methods.run("genai-plain", [5, 6, 7], 8, 0.8)
    assert all(row["tokens"] == 8 and row["speed"] > 0 for row in (*rows.values(), drawn))
    assert rows["plain"]["passes"] == rows["genai-plain"]["passes"] == 8
    assert "drafted" not in rows["plain"]
    assert rows["constant-2"]["drafted"] > 0
    assert rows["genai-draft-2"]["drafted"] > 0


def test_a_row_has_four_digits_and_nothing_that_was_not_told():
    assert compact({"a": 0.123456, "b": None, "c": 7, "d": "x"}) == {"a": 0.1235, "c": 7, "d": "x"}


def measured(measurements, number):
    """So many rows of a part, and then its end."""
    with closing(measurements):
        return [{**key, **measure()} for key, measure in islice(measurements, number)]


def test_single_requests_take_turns_over_prompts_and_temperatures(given):
    methods, sets, heats = ("plain", "constant-2"), ("code", "tests"), (0.0, 0.8)
    rows = measured(alone.requests(given, "embedded", methods, sets, heats, 4, 1), 8)
    assert [(row["prompts"], row["heat"]) for row in rows[::2]] == [
        *(("code", 0.0), ("code", 0.8)),
        *(("tests", 0.0), ("tests", 0.8)),
    ]
    assert [row["method"] for row in rows[:4]] == ["plain", "constant-2", "constant-2", "plain"]
    assert [row["turn"] for row in rows] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_second_turn_finds_the_first_ones_cache(given):
    (row,) = measured(alone.second_turns(given, rounds=1, first=60), 1)
    assert row["cached"] >= 60 + alone.ANSWER - 1
    assert row["kept"] > 0
    assert row["fresh"] > 0


def test_many_requests_are_measured_in_processes(given):
    rows = measured(workers.many(given, "embedded", ("plain",), (1, 2), "code", 4, 1), 2)
    assert [row["requests"] for row in rows] == [1, 2]
    assert all(row["speed"] > 0 for row in rows)


def test_memory_and_a_fresh_process(given, monkeypatch):
    monkeypatch.setattr(workers, "SETTLED", 0.0)
    (row,) = measured(workers.memory(given, {"embedded": (("plain", "none"),)}), 1)
    assert row["memory"] > 50
    first, second = measured(workers.first_processes(given, "embedded", 2, 4, 1), 2)
    assert (first["method"], second["method"]) == ("first", "second")
    assert all(
        row["speed"] > 0 and row["first"] > 0 and row["memory"] > 50 for row in (first, second)
    )


def test_other_frameworks_are_measured_in_turns(given):
    rows = measured(workers.frameworks(given, "embedded", ("plain", "suffix"), "code", 4, 1), 4)
    assert [row["method"] for row in rows] == ["plain", "suffix", "suffix", "plain"]


def test_speech_is_measured_in_turns(whisper, tmp_path, monkeypatch):
    from tests.recordings import write_recording
    from tests.tiny_whisper import RATE, recording

    write_recording(tmp_path / "voice.wav", recording(1.5), RATE)
    monkeypatch.setattr(speech, "genai", lambda _: lambda _: {})
    given = Given(speech=whisper.main, recordings=(tmp_path / "voice.wav",))
    rows = measured(speech.speech(given, rounds=1), 3)
    assert [row["method"] for row in rows] == ["suffix", "genai-plain", "plain"]
    assert all(row["duration"] == 1.5 and row["seconds"] > 0 for row in rows)


def test_invariance_costs_what_it_costs_in_each_way(given):
    rows = measured(invariance(given, ("embedded", "chat"), (20,), 1), 9)
    assert [(row["pair"], row["cached"], row["turn"]) for row in rows] == [("embedded", 20, 1)] * 3
    assert [row["way"] for row in rows] == ["speculative", "plain alone", "plain 8 together"]
    assert all(row["ratio"] > 0 for row in rows)


def test_a_load_wants_its_clients(given, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BenchmarkError, match="guidellm is not installed: pip install"):
        measured(load.load(given, 1.0), 1)


def test_a_table_of_a_load_tells_of_all_clients(results):
    _, lines = table("load", results)
    cells = dict(lines[1:])
    assert cells["guidellm's requests: whole, failed"] == "1,200, 0"
    assert cells["answers of /health: 200, others"] == "1,300, 2"
    assert cells["memory (MB): before, half-way, at the end"] == "300, 450, 500"


def test_every_part_can_be_asked_for_and_fits_the_time():
    assert sum(part.minutes for part in PARTS.values() if part.needs != "gguf") <= 50
    assert {part for parts, _ in TABLES.values() for part in parts} == set(PARTS)


SPEEDS = {"plain": 10.0, "adaptive": 20.0, "constant-4": 16.0, "constant-8": 25.0}
SPEEDS |= {"genai-plain": 8.0, "genai-draft-2": 15.0, "suffix": 15.0, "prompt-lookup": 12.0}
SPEEDS |= {"genai-prompt-lookup-3": 11.0}


LOADED = {
    "guidellm": {"whole": 1200, "failed": 0},
    "others": {
        "answered": {"stream": 300, "whole": 200, "hang-up": 4000, **dict.fromkeys(HOSTILE, 50)},
        "wrong": [],
        "told to come later": 7,
        "health by status": {200: 1300, 503: 2},
        "memory_mb": [300, *range(410, 510, 10)],
    },
}


@pytest.fixture
def results():
    """Figures of every part, made up: each method has its speed everywhere."""
    record = Record.begin("figures", {}, {})
    record.date, record.code = "2026-11-24T08:00:00+00:00", {"commit": 40 * "a", "clean": True}
    record.machine = {"name": "CPU", "cores": 2, "ONEDNN_MAX_CPU_ISA": None, "instructions": []}
    record.models = {"chat": {"name": "SmolLM2", "digest": "1"}}
    record.rows.append({"part": "load", "seconds": 300, **load.as_row(LOADED, 300)})
    for turn in range(8):
        about = {"turn": turn, "task": ("qa", "rag")[turn % 2], "requests": (4, 16)[turn % 2]}
        about |= {"prompts": ("code", "heldout")[turn % 2], "heat": (0.0, 0.8)[turn // 2 % 2]}
        about |= {"pair": "embedded", "kept": 0.01, "fresh": 0.1, "memory": 300.0, "peak": 400.0}
        about |= {"first": 0.1, "seconds": 3.0, "duration": 30.0, "n": 9, "shapes": "auto"}
        about |= {"way": ("alone", "together")[turn % 2], "cached": 1900, "ratio": 0.9}
        for part in PARTS.keys() - {"load"}:
            speeds = {"first": 9.0, "second": 10.0} if part == "processes" else SPEEDS
            for method, speed in speeds.items():
                row = {**about, "part": part, "method": method, "speed": speed}
                record.rows.append(row | ({"heat": 0.0} if part == "tasks" else {}))
    return Results("cpu", record)


def table(name, results):
    """The lines of a table in a page, as cells."""
    page = filled(f"before\n<!-- figures: {name} -->\nold\n<!-- end -->\nafter\n", [results])
    assert page.startswith(f"before\n<!-- figures: {name} -->\n\n|")
    assert page.endswith("<!-- end -->\nafter\n")
    assert "old" not in page
    return page, [line.strip("| ").split(" | ") for line in page.splitlines() if line[:1] == "|"]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_with_what_it_was_measured(name, results):
    page, lines = table(name, results)
    assert len({line.count("|") for line in page.splitlines() if line[:1] == "|"}) == 1
    assert len(lines[0]) <= 6
    assert filled(page, [results]) == page
    assert "CPU (any), 2 cores; openvino 2026" in page
    assert "measured on 2026-11-24, commit aaaaaaaaaa; n = " in page
    assert f"`python -m tests.benchmarks figures --only {','.join(TABLES[name][0])}" in page


def test_tables_have_medians_of_neighbours(results):
    _, lines = table("embedded", results)
    assert ["default", "20 (20 to 20)", *["2.00 (2.00 to 2.00)"] * 4] in lines
    _, lines = table("tasks", results)
    assert lines[-1][0] == "mean of the medians"
    cells = {line[0]: line[1:] for line in table("defaults", results)[1]}
    assert cells["default / plain, greedy"][0] == "2.00 (2.00 to 2.00)"
    headlines = [line[0] for line in table("headlines", results)[1]]
    assert headlines[:3] == list(cells)[:3]
    assert 6 <= len(headlines) < len(cells)
    assert cells["default / best constant draft length, greedy"][0] == "0.80 (0.80 to 0.80)"
    assert cells["16 requests, default / openvino.genai's best setting"][0].startswith("1.33")
    assert cells["first process on a machine / second one"][0] == "0.90 (0.90 to 0.90)"


def test_a_table_may_be_of_one_processor_and_of_none(results):
    page = "<!-- figures: memory of other -->\n<!-- end -->\n"
    assert "*Not measured: `python -m tests.benchmarks figures --only memory`.*" in filled(
        page, [results]
    )
    assert "| MiB after 10 s |" in filled(page.replace("other", "cpu"), [results])
    with pytest.raises(KeyError):
        filled(page.replace("memory", "momory"), [results])


def test_charts_are_drawn_in_the_ink_of_the_page(results, tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    results.record.write(folder / "cpu.json")
    drawn = []
    for _ in range(2):
        done = run("charts", "--figures", folder, "--output", tmp_path, main=main)
        assert done.returncode == 0, done.stderr
        drawn.append([(tmp_path / f"{name}-cpu.svg").read_text() for name in CHARTS])
    assert drawn[0] == drawn[1]
    for text in drawn[0]:
        assert "prefers-color-scheme: dark" in text
        assert "currentColor" in text
        assert "measured on 2026-11-24" in text


def test_the_best_length_is_chosen_on_the_turns_that_it_is_not_measured_on():
    """Each is the faster one of half of the turns, so that the slower one is always measured."""
    from tests.benchmarks.tables import to_best

    rows = [
        {"turn": turn, "method": name, "speed": speed}
        for turn in range(4)
        for name, speed in (("model", 2.0), ("@2", 4.0 - turn % 2 * 3), ("@4", 1 + turn % 2 * 3))
    ]
    values, chosen = to_best(rows, "model", ["@2", "@4"])
    assert values == [2.0] * 4
    assert sorted(chosen) == ["@2", "@4"]


def test_what_stands_between_empty_blocks_stays():
    empty = "<!-- figures: memory -->\n<!-- end -->\n"
    page = filled(f"{empty}between\n{empty}", [])
    assert page.count("<!-- end -->\nbetween\n<!-- figures: memory -->") == 1
