"""`ov-specdec bench`: turns and figures with fakes, the command on real models."""

import json
import os
import sys

import pytest
from matplotlib.axes import Axes

from ov_specdec import GenerationResult, GenerationStats, RoundStats
from ov_specdec.bench.methods import find_method, select_methods
from ov_specdec.bench.pipelines import make_ways, open_pipelines
from ov_specdec.bench.plot import plot_ratios
from ov_specdec.bench.prompts import CODE, QUOTING, read_prompts
from ov_specdec.bench.requests_at_once import Answer, answer_at_once
from ov_specdec.bench.summary import Spread, summarize
from ov_specdec.bench.turns import Run, Schedule, run_interleaved
from ov_specdec.chunks import Chunk
from ov_specdec.cli.bench import METHODS, QUICK
from ov_specdec.cli.bench import bench as command
from ov_specdec.errors import OptionError, SessionError
from ov_specdec.loading.devices import describe_machine
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.profile import Profile, fingerprint
from ov_specdec.pipeline import SpeculativePipeline
from tests.command_line import run

MAIN = {"KV_CACHE_PRECISION": "f32"}
PNG = b"\x89PNG\r\n\x1a\n"


def answer(seconds, token_ids=(1, 2, 3, 4), *, first=0.5, drafted=0, accepted=0, passes=4):
    rounds = [RoundStats(0, 0, 1, 0.0, 0.1, 0.0, 0.1) for _ in range(passes - 1)]
    rounds.append(RoundStats(drafted, accepted, len(token_ids) - passes + 1, 0.0, 0.1, 0.0, 0.1))
    result = GenerationResult("", list(token_ids), "length", GenerationStats(7, rounds))
    return Answer(result, first, seconds)


def test_methods_run_interleaved_load_by_load_and_round_by_round():
    log, steps = [], []

    def way(name):
        return lambda prompts: log.append((name, "".join(prompts))) or [answer(1.0)]

    schedule = Schedule(["a", "b", "c"], concurrency=(1, 2), rounds=2)
    runs = list(run_interleaved({"plain": way("plain"), "x": way("x")}, schedule, steps.append))
    assert log[:4] == [("plain", "a"), ("x", "a"), ("plain", "a"), ("x", "a")]  # the warm-up first
    assert [name for name, _ in log] == ["plain", "x"] * schedule.num_turns
    assert [load for name, load in log if name == "x"] == [
        *("a", "a", "b", "c", "a", "b", "c"),
        *("ab", "ab", "ab"),
    ]
    assert len(steps) == len(log)
    assert len(runs) == len(log) - 4  # a warm-up of each at each concurrency
    assert [run.place for run in runs if run.method == "x"][5:] == [(1, 1, 2), (2, 0, 0), (2, 1, 0)]


def test_a_load_that_is_larger_than_the_prompts_takes_them_again():
    schedule = Schedule(["a", "b", "c"], (), 1)
    assert schedule.loads(1) == [["a"], ["b"], ["c"]]
    assert schedule.loads(2) == [["a", "b"]]
    assert schedule.loads(7) == [["a", "b", "c", "a", "b", "c", "a"]]


def test_ratios_are_those_of_neighbours_not_of_medians():
    runs = []
    for load, (plain, other) in enumerate([(4.0, 2.0), (10.0, 1.0), (1.0, 2.0)]):
        runs += [Run("plain", 1, 0, load, [answer(plain)]), Run("x", 1, 0, load, [answer(other)])]
    plain, other = summarize(runs)
    assert plain.ratio == Spread(1.0, 1.0, 1.0)
    assert other.ratio == Spread(2.0, 1.25, 6.0)  # of 2, 10 and 0.5
    assert other.tokens_per_second == Spread(2.0, 2.0, 3.0)
    assert (other.method, other.concurrency, other.num_loads) == ("x", 1, 3)


def test_a_row_has_the_figures_of_all_requests():
    plain = [answer(2.0, first=1.0), answer(4.0, first=2.0)]
    draft = [
        answer(1.0, first=0.4, drafted=4, accepted=2, passes=2),
        answer(2.0, (1, 2, 3, 5), first=0.8, drafted=2, accepted=2, passes=2),
    ]
    runs = [Run("plain", 2, 0, 0, plain), Run("x", 2, 0, 0, draft), Run("plain", 3, 0, 0, plain)]
    first, second, third = summarize(runs)
    assert [row.concurrency for row in (first, second, third)] == [2, 2, 3]
    assert first.tokens_per_second.median == 2.0  # 8 tokens until the last request has ended
    assert second.ratio.median == 2.0
    assert first.first_token_seconds == Spread(1.5, 1.25, 1.75)
    assert second.token_seconds.median == pytest.approx(0.3)  # 0.2 and 0.4
    assert (first.tokens_per_pass, second.tokens_per_pass) == (1.0, 2.0)
    assert (first.acceptance, second.acceptance) == (None, 4 / 6)
    assert (first.equal, second.equal) == (1.0, 0.5)


def test_bars_of_the_plot_reach_from_quartile_to_quartile(tmp_path, monkeypatch):
    bars = []
    monkeypatch.setattr(Axes, "bar", lambda _, places, *given, **more: bars.append((given, more)))
    monkeypatch.setattr(Axes, "legend", lambda *_, **__: None)
    runs = [Run("plain", 1, 0, load, [answer(4.0)]) for load in range(3)]
    runs += [Run("x", 1, 0, load, [answer(s)]) for load, s in enumerate([8.0, 2.0, 0.8])]
    plot_ratios(tmp_path / "plot.png", summarize(runs))
    [((medians, _), more)] = bars
    assert medians == [1.0, 2.0]  # of 0.5, 2 and 5
    assert more["yerr"] == [[0.0, 0.75], [0.0, 1.5]]


def test_an_answer_of_one_token_has_none_to_follow():
    assert answer(2.0, (1,), first=1.0, passes=1).token_seconds == 0.0


class FakeBatch:
    """Gives each request a token at each step, and ends them with what they are to end with."""

    def __init__(self, pipeline):
        self.added = pipeline.added
        self.ends = pipeline.ends
        self.left = {}
        self.is_closed = False

    def add(self, key, prompt, **options):
        self.added.append((prompt, options))
        self.left[key] = len(prompt)

    def step(self):
        news = []
        for key in reversed(list(self.left)):
            self.left[key] -= 1
            if self.left[key]:
                news.append((key, Chunk("", [key], "plain")))
            else:
                del self.left[key]
                news.append((key, self.ends(key)))
        return news

    def __len__(self):
        return len(self.left)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.is_closed = True


class FakePipeline:
    def __init__(self, ends):
        self.added, self.ends = [], ends

    def open_batch(self):
        self.batch = FakeBatch(self)
        return self.batch


def last(key):
    return Chunk("", [key], "plain", finish_reason="length", stats=GenerationStats(1))


def test_requests_of_a_load_are_added_before_the_first_step():
    pipeline = FakePipeline(last)
    first, second = answer_at_once(pipeline, {"max_new_tokens": 3}, ["ab", "abc"])
    assert pipeline.added == [("ab", {"max_new_tokens": 3}), ("abc", {"max_new_tokens": 3})]
    assert (first.result.token_ids, second.result.token_ids) == ([0, 0], [1, 1, 1])
    assert 0 < first.first_token_seconds == second.first_token_seconds  # of the same step
    assert first.first_token_seconds < first.seconds < second.seconds
    assert pipeline.batch.is_closed


def test_a_request_that_fails_ends_its_load():
    pipeline = FakePipeline(lambda key: SessionError("no memory"))
    with pytest.raises(SessionError, match="no memory"):
        answer_at_once(pipeline, {}, ["a"])
    assert pipeline.batch.is_closed


def test_methods_have_a_drafter_and_a_length():
    assert find_method("constant-12").options == {"num_assistant_tokens": 12}
    assert find_method("constant-12").drafter == find_method("adaptive").drafter == "model"
    assert find_method("suffix").drafter == "suffix"
    for name in METHODS.split(","):
        assert find_method(name).name == name
    names = [method.name for method in select_methods(["both", "plain", "constant-2", "both"])]
    assert names == ["plain", "both", "constant-2"]


@pytest.mark.parametrize("name", ["constant", "constant-0", "constant-257", "own", "plain@default"])
def test_a_method_that_does_not_exist_is_refused(name):
    with pytest.raises(OptionError, match=f"method '{name}' does not exist"):
        find_method(name)


def test_each_drafter_has_a_pipeline_and_plain_decoding_the_first(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where nothing is known yet
    arguments = {"main": tiny_pair[0], "draft": tiny_pair[1], "static_shapes": [4]}
    notes = []
    names = ["plain", "suffix", "constant-3", "adaptive"]
    pipelines = open_pipelines(select_methods(names), arguments, notes.append)
    assert list(pipelines) == ["model", "suffix"]
    assert pipelines["suffix"].draft is None
    assert [note.partition(": waited ")[0] for note in notes] == ["drafter model", "drafter suffix"]
    assert all("static shapes (4)" in note for note in notes)
    for pipeline in pipelines.values():
        assert pipeline._costs._live is not None  # measured by now
        assert pipeline.batch_invariant.is_checked
    ways = make_ways(select_methods(names), pipelines, {"max_new_tokens": 4, "ignore_eos": True})
    drafted = {name: way(["def f(x):"])[0].result.stats.drafted for name, way in ways.items()}
    assert drafted["plain"] == 0 < drafted["constant-3"]
    assert ways["plain"].args[0] is ways["adaptive"].args[0] is pipelines["model"]
    assert ways["suffix"].args[0] is pipelines["suffix"]


def test_a_profile_of_the_pair_is_for_the_main_model_alone_too(tiny_pair, profile):
    given = {"main": tiny_pair[0], "draft": tiny_pair[1], "draft_device": None, "profile": profile}
    opened = open_pipelines(select_methods(["adaptive", "suffix"]), given, print)
    assert [dict(each.main.config.properties) for each in opened.values()] == [MAIN, MAIN]
    with pytest.raises(OptionError, match=r"profile=.* has no effect with"):
        open_pipelines(select_methods(["suffix"]), given, print)


@pytest.fixture
def profile(tiny_pair, tmp_path):
    """The file of a profile for the tiny pair."""
    folders = map(ModelFolder.read, tiny_pair)
    written = Profile(fingerprint(*folders, describe_machine("CPU"), "auto"), MAIN, {}, {})
    written.write(tmp_path / "profile.json")
    return tmp_path / "profile.json"


def bench(pair, folder, *options):
    """Run the command on two prompts, one of several blocks; everything goes to b.json."""
    (folder / "prompts.txt").write_text(f"def f(x): {60 * 'x, '}\nclass A:\n")
    models = ("--main", pair[0], "--draft", pair[1], "--static-shapes", "none")
    little = ("--precision", "exact", "--rounds", 1, "--max-new-tokens", 6)
    files = ("--prompt-file", folder / "prompts.txt", "--output", folder / "b.json")
    return run("bench", *models, *little, *files, *options)


def table_of(stdout):
    """The rows of the table, by method and concurrency."""
    lines = [line.split("|") for line in stdout.splitlines() if "|" in line]
    head, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return {(row[0], int(row[1])): dict(zip(head, row, strict=True)) for row in rows}


def test_a_pair_is_measured_and_shown(tiny_pair, tmp_path):
    output = tmp_path / "new" / "b.json"
    options = ("--methods", "constant-2,suffix", "--concurrency", "3,1", "--output", output)
    done = bench(tiny_pair, tmp_path, *options)
    assert done.returncode == 0, done.stderr
    rows = table_of(done.stdout)
    assert list(rows) == [(m, n) for n in (1, 3) for m in ("plain", "constant-2", "suffix")]
    for row in rows.values():
        assert float(row["tokens/s"].split()[0]) > 0
        assert row["equal to plain"] == "100%"  # in exact precision
    assert rows["plain", 3]["speedup"] == "1.00 (1.00 to 1.00)"
    assert rows["plain", 3]["accepted"] == "-"
    assert rows["constant-2", 1]["accepted"].endswith("%")

    report = json.loads(output.read_text())
    assert report["settings"]["ended_by"] is None
    assert report["settings"]["main"] == str(tiny_pair[0])
    assert report["settings"]["max_batch_size"] == 3
    assert [len(models) for models in report["models"].values()] == [2, 1]
    assert [(row["method"], row["concurrency"]) for row in report["table"]] == list(rows)
    assert len(report["runs"]) == 3 * (2 + 1)  # two prompts one by one, then one load of three
    for measured in report["runs"]:
        assert len(measured["answers"]) == measured["concurrency"]
        for each in measured["answers"]:
            assert len(each["result"]["token_ids"]) == 6
            rounds = each["result"]["stats"]["rounds"]
            assert sum(round_["num_generated"] for round_ in rounds) == 6
            assert rounds[0]["cached_tokens"] == 0  # each reads all of its prompt
    assert output.with_suffix(".png").read_bytes().startswith(PNG)
    assert [line.split()[1] for line in done.stderr.splitlines()[:2]] == ["model:", "suffix:"]
    assert "waited" in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[-1] == f"written to {output} and {output.with_suffix('.png')}"


@pytest.mark.parametrize(
    ("error", "said", "begins", "code"),
    [
        (KeyboardInterrupt(), "Ctrl-C", "", 130),
        (SessionError("no memory"), "no memory", "error: ", 2),
    ],
)
def test_what_was_measured_until_an_early_end_counts(
    error, said, begins, code, tiny_pair, tmp_path, monkeypatch
):
    def failing(*arguments):
        runs = run_interleaved(*arguments)
        yield from (next(runs) for _ in range(3))
        raise error

    monkeypatch.setattr("ov_specdec.cli.bench.run_interleaved", failing)
    done = bench(tiny_pair, tmp_path, "--methods", "constant-2")
    assert done.returncode == code
    assert list(table_of(done.stdout)) == [("plain", 1), ("constant-2", 1)]
    assert done.stdout.rstrip().endswith(f"; partial: ended by {said}")
    assert done.stderr.splitlines()[-1].startswith(f"{begins}ended by {said}: the results so far")
    report = json.loads((tmp_path / "b.json").read_text())
    assert report["settings"]["ended_by"] == said
    assert len(report["runs"]) == 3


def test_nothing_is_written_where_nothing_was_measured(tiny_pair, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    (tmp_path / "b.json").write_text("before")
    monkeypatch.setattr("ov_specdec.cli.bench.run_interleaved", interrupted)
    done = bench(tiny_pair, tmp_path, "--methods", "plain")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1] == "interrupted"
    assert (tmp_path / "b.json").read_text() == "before"
    assert {file.name for file in tmp_path.iterdir()} == {"b.json", "prompts.txt"}


def test_it_runs_without_matplotlib(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = bench(tiny_pair, tmp_path, "--methods", "constant-4")
    assert done.returncode == 0, done.stderr
    assert list(table_of(done.stdout)) == [("plain", 1), ("constant-4", 1)]
    assert "no plot without matplotlib: in a checkout: pip install '.[bench]'" in done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"b.json", "prompts.txt"}


def test_a_prompt_that_is_too_long_is_refused_before_anything_is_measured(tiny_pair, tmp_path):
    (tmp_path / "long.txt").write_text("def f(x):\n" + "x = 1; " * 400)
    file = ("--prompt-file", tmp_path / "long.txt")
    done = bench(tiny_pair, tmp_path, "--methods", "plain", *file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "shorten the prompt" in done.stderr.splitlines()[-1]


def test_quick_changes_defaults_only():
    """What is typed counts, before and after it."""
    params = command.make_context("bench", ["--rounds", "7", "--quick"]).params
    assert (params["methods"], params["rounds"]) == (QUICK["methods"], 7)
    assert params["max_new_tokens"] == 32
    assert command.make_context("bench", []).params["rounds"] == 5


@pytest.mark.deep
def test_quick_measures_the_embedded_pair(tmp_path):
    done = run("bench", "--quick", "--precision", "exact", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = table_of(done.stdout)
    assert list(rows) == [(name, 1) for name in QUICK["methods"].split(",")]
    assert {row["equal to plain"] for row in rows.values()} == {"100%"}
    assert float(rows["constant-4", 1]["tokens per pass"]) > 2
    report = json.loads((tmp_path / "benchmark.json").read_text())
    assert len(report["runs"]) == 3 * len(CODE)
    assert (tmp_path / "benchmark.png").stat().st_size > 5000
    assert "waited" in done.stderr


@pytest.mark.deep
def test_quoting_prompts_are_quoted():
    model = SpeculativePipeline(drafter="none")
    for prompt in QUOTING:
        text = model.generate(prompt, max_new_tokens=16, ignore_eos=True).text
        assert text in prompt + prompt[-len(text) :]


def test_prompts_from_files(tmp_path):
    lines = tmp_path / "prompts.txt"
    lines.write_text("def f(x):\n\n{'a': 1}\n")
    assert read_prompts(lines) == ("def f(x):", "{'a': 1}")
    objects = tmp_path / "prompts.jsonl"
    objects.write_text('{"prompt": "a\\nb"}\n{"prompt": "c", "id": 4}\n')
    assert read_prompts(objects) == ("a\nb", "c")
    objects.write_text('{"prompt": "a\u2028b"}\n', encoding="utf-8")
    assert read_prompts(objects) == ("a\u2028b",)


BAD_INPUT = {
    "unknown method": (["--methods", "plain,fast"], "method 'fast' does not exist: use plain"),
    "no rounds": (["--rounds", "0"], "--rounds 0 must be a whole number"),
    "no tokens": (["--max-new-tokens", "0"], "--max-new-tokens 0 must be"),
    "no draft": (["--main", "."], "no draft model for --main .: give --draft"),
    "no folder": (["--main", "nowhere", "--draft", "nowhere"], "'nowhere' is not a folder"),
    "no file": (["--prompt-file", "nowhere"], "--prompt-file 'nowhere' cannot be read as text"),
    "empty file": (["--prompt-file", os.devnull], "holds no prompt"),
    "two sources": (["--prompts", "code", "--prompt-file", "x"], "or --prompt-file 'x', not both"),
    "no place": (["--output", f"{os.devnull}/x.json"], f"'{os.devnull}' cannot be used"),
    "no JSON": (["--output", "report"], "--output 'report' must end in .json"),
    "no requests": (["--concurrency", "1,0"], "--concurrency 1,0 must be whole numbers above 0"),
    "no numbers": (["--concurrency", "few"], "--concurrency few must be"),
    "bad property": (["--property", "KEY"], "'KEY' must have the form KEY=VALUE"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_before_anything_runs(case, tmp_path):
    arguments, complaint = BAD_INPUT[case]
    done = run("bench", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert complaint in done.stderr
    assert not list(tmp_path.iterdir())
