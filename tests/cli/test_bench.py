"""`ov-specdec bench`: turns and figures with fakes, the command on real models."""

import json
import re

import pytest

from ov_specdec import GenerationResult, GenerationStats, RoundStats
from ov_specdec.cli.bench import QUICK
from ov_specdec.errors import OptionError, SessionError
from ov_specdec.measure.methods import (
    BASELINE,
    Spread,
    TimedAnswer,
    find_method,
    interleave,
    open_methods,
    summarize,
)
from ov_specdec.measure.prompts import CODE, read_prompts
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.profile import Profile, pair_fingerprint
from tests.support.command_line import run

MAIN = {"KV_CACHE_PRECISION": "f32"}


def answer(seconds, token_ids=(1, 2, 3, 4), *, first=0.5, drafted=0, accepted=0, passes=4):
    rounds = [RoundStats(0, 0, 1, 0.0, 0.1, 0.0, 0.1) for _ in range(passes - 1)]
    rounds.append(RoundStats(drafted, accepted, len(token_ids) - passes + 1, 0.0, 0.1, 0.0, 0.1))
    result = GenerationResult("", list(token_ids), "length", GenerationStats(7, rounds))
    return TimedAnswer(result, first, seconds)


def test_methods_are_interleaved_prompt_by_prompt_in_alternating_order():
    log, steps = [], []

    def method(name):
        return lambda prompt: log.append(name + prompt) or prompt.upper()

    turns = list(interleave({"a": method("a"), "b": method("b")}, ["x", "y", "z"], steps.append))
    assert log == ["ax", "bx", "by", "ay", "az", "bz"]
    assert steps == [run[0] for run in log]
    assert turns == [{"a": "X", "b": "X"}, {"a": "Y", "b": "Y"}, {"a": "Z", "b": "Z"}]
    assert list(turns[1]) == ["a", "b"]


def test_ratios_are_those_of_turns_not_of_medians():
    times = [(4.0, 2.0), (10.0, 1.0), (1.0, 2.0)]
    turns = [{"plain": [answer(one)], "x": [answer(other)]} for one, other in times]
    plain, other = summarize(turns)
    assert plain.ratio == Spread(1.0, 1.0, 1.0)
    assert other.ratio == Spread(2.0, 1.25, 6.0)  # of 2, 10 and 0.5
    assert other.tokens_per_second == Spread(2.0, 2.0, 3.0)
    assert (other.method, other.concurrency, other.num_turns) == ("x", 1, 3)


def test_a_row_has_the_figures_of_all_requests():
    plain = [answer(2.0, first=1.0), answer(4.0, first=2.0)]
    draft = [
        answer(1.0, first=0.4, drafted=4, accepted=2, passes=2),
        answer(2.0, (1, 2, 3, 5), first=0.8, drafted=2, accepted=2, passes=2),
    ]
    turns = [{"plain": plain, "x": draft}, {"plain": [*plain, *plain[:1]]}]
    first, second, third = summarize(turns)
    assert [row.concurrency for row in (first, second, third)] == [2, 2, 3]
    assert first.tokens_per_second.median == 2.0  # 8 tokens until the last request has ended
    assert second.ratio.median == 2.0
    assert first.first_token_seconds == Spread(1.5, 1.25, 1.75)
    assert second.token_seconds.median == pytest.approx(0.3)  # 0.2 and 0.4
    assert (first.tokens_per_pass, second.tokens_per_pass) == (1.0, 2.0)
    assert (first.acceptance, second.acceptance) == (None, 4 / 6)
    assert (first.equal, second.equal) == (1.0, 0.5)


def selected(*names):
    return {name: find_method(name) for name in (BASELINE, *names)}


def test_each_drafter_has_a_pipeline_and_plain_decoding_the_first(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where nothing is known yet
    arguments = {"main": tiny_pair[0], "draft": tiny_pair[1], "static_shapes": [4]}
    methods = selected("suffix", "constant-3", "adaptive")
    answers = open_methods(methods, arguments, {"max_new_tokens": 4, "ignore_eos": True})
    pipelines = {name: own.args[0] for name, own in answers.items()}
    assert pipelines["plain"] is pipelines["constant-3"] is pipelines["adaptive"]
    assert pipelines["suffix"].draft is None
    for pipeline in pipelines.values():
        assert pipeline.costs.is_measured
        assert pipeline.batch_invariant.is_checked
        assert 4 in pipeline.main.runner.static_shapes
    found = {name: own(["def f(x):", "class A:"]) for name, own in answers.items()}
    assert all(
        0 < each.first_token_seconds < each.seconds for own in found.values() for each in own
    )
    drafted = {name: own[0].result.stats.drafted for name, own in found.items()}
    assert drafted["plain"] == 0 < drafted["constant-3"]


def test_a_profile_of_the_pair_is_for_the_main_model_alone_too(tiny_pair, profile):
    given = {"main": tiny_pair[0], "draft": tiny_pair[1], "draft_device": None, "profile": profile}
    opened = open_methods(selected("adaptive", "suffix"), given, {})
    for own in opened.values():
        assert dict(own.args[0].main.config.properties) == MAIN
    with pytest.raises(OptionError, match=r"profile=.* has no effect with"):
        open_methods(selected("suffix"), given, {})


@pytest.fixture
def profile(tiny_pair, tmp_path):
    """The file of a profile for the tiny pair."""
    folders = map(ModelFolder.read, tiny_pair)
    written = Profile(pair_fingerprint(*folders, "CPU", "auto"), MAIN, {}, {})
    written.write(tmp_path / "profile.json")
    return tmp_path / "profile.json"


def bench(pair, folder, *options):
    """Run the command on two prompts, one of several blocks."""
    (folder / "prompts.txt").write_text(f"def f(x): {60 * 'x, '}\nclass A:\n")
    models = ("--main", pair[0], "--draft", pair[1], "--static-shapes", "none")
    little = ("--precision", "exact", "--rounds", 1, "--max-new-tokens", 6)
    return run("bench", *models, *little, "--prompt-file", folder / "prompts.txt", *options)


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
    assert report["ended_by"] is None
    assert report["settings"]["main"] == str(tiny_pair[0])
    assert report["settings"]["max_batch_size"] == 3
    assert [(row["method"], row["concurrency"]) for row in report["table"]] == list(rows)
    assert [turn["concurrency"] for turn in report["turns"]] == [1, 1, 3]
    for turn in report["turns"]:
        assert list(turn["answers"]) == ["plain", "constant-2", "suffix"]
        for answers in turn["answers"].values():
            assert len(answers) == turn["concurrency"]
            for each in answers:
                assert len(each["result"]["token_ids"]) == 6
                rounds = each["result"]["stats"]["rounds"]
                assert sum(round_["num_generated"] for round_ in rounds) == 6
                assert rounds[0]["cached_tokens"] == 0  # each reads all of its prompt
    assert re.fullmatch(r"9 runs take about \d+ s", done.stderr.splitlines()[0])


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (SessionError("full"), 2)])
def test_what_was_measured_until_an_early_end_counts(error, code, tiny_pair, tmp_path, monkeypatch):
    def failing(methods, prompts, step):
        for turn in interleave(methods, prompts, step):
            yield turn
            if len(prompts) > 1:  # not in the warm-up
                raise error

    monkeypatch.setattr("ov_specdec.cli.bench.interleave", failing)
    file = ("--output", tmp_path / "b.json")
    done = bench(tiny_pair, tmp_path, "--methods", "constant-2", *file)
    assert done.returncode == code
    assert list(table_of(done.stdout)) == [("plain", 1), ("constant-2", 1)]
    assert done.stdout.rstrip().endswith("; partial, since it ended early")
    said = "interrupted" if code == 130 else "error: full"
    assert done.stderr.splitlines()[-1] == said
    assert len(json.loads((tmp_path / "b.json").read_text())["turns"]) == 1


def test_no_file_is_written_unasked(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bench(tiny_pair, tmp_path, "--methods", "plain").returncode == 0
    assert [file.name for file in tmp_path.iterdir()] == ["prompts.txt"]


@pytest.mark.deep
def test_quick_measures_the_embedded_pair(tmp_path):
    done = run("bench", "--quick", "--precision", "exact", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = table_of(done.stdout)
    assert list(rows) == [(name, 1) for name in QUICK["methods"].split(",")]
    assert {row["equal to plain"] for row in rows.values()} == {"100%"}
    assert float(rows["constant-4", 1]["tokens per pass"]) > 2
    assert f"{3 * len(CODE)} runs take about" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_prompts_from_files(tmp_path):
    lines = tmp_path / "prompts.txt"
    lines.write_text("def f(x):\n\n{'a': 1}\n", encoding="utf-8-sig")
    assert read_prompts(lines) == ("def f(x):", "{'a': 1}")
    objects = tmp_path / "prompts.jsonl"
    objects.write_text('{"prompt": "a\\nb"}\n{"prompt": "c", "id": 4}\n')
    assert read_prompts(objects) == ("a\nb", "c")
    objects.write_text('{"prompt": "a\u2028b"}\n', encoding="utf-8")
    assert read_prompts(objects) == ("a\u2028b",)
