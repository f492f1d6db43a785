"""The laboratory's `peers` and `sweeps`, end to end and in parts. Nothing here checks a speed."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from ov_specdec import RoundStats
from ov_specdec.errors import OptionError
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.text.tokenizer import load_tokenizer
from tests.benchmarks.__main__ import main
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks.genai import model_with_tokenizer
from tests.benchmarks.peers.load import Load, serve_load
from tests.benchmarks.peers.methods import QUICK as QUICK_METHODS
from tests.benchmarks.peers.methods import find_method
from tests.benchmarks.peers.plan import QUICK
from tests.benchmarks.peers.process import WorkerProcess
from tests.benchmarks.peers.prompts import MIX_SIZE, MIX_TOKENS, encode_prompts, mixed_prompts
from tests.benchmarks.peers.setup import Setup
from tests.benchmarks.sweep import measure
from tests.benchmarks.sweep.measure import QUICK as QUICK_SWEEPS
from tests.benchmarks.sweep.measure import acceptance_by_position
from tests.command_line import run
from tests.fakes import ScriptedModel, counting

MODEL = Path(__file__).parent.parent / "models" / "draft"
PLOTS = ("speed-by-length", "temperature", "pass-cost", "acceptance-by-position", "timeline")
MISSING = ("matplotlib", "openvino_genai", "torch")


PNG = b"\x89PNG\r\n\x1a\n"

LOADS = (
    *("--quick", "--concurrency", 2, "--arrivals", "poisson:100", "--precision", "exact"),
    *("--rounds", 1, "--max-new-tokens", 8, "--static-shapes", "none"),
)
"""Options of a short measurement of many requests."""


def laboratory(*arguments, **settings):
    """Run a command of the laboratory in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **settings)


def read_loads(folder, done):
    """The report of a run with `LOADS`, and its rows by method, each of which makes sense."""
    assert done.returncode == 0, done.stderr
    assert (folder / "concurrency.md").read_text() == done.stdout
    assert (folder / "concurrency.png").read_bytes().startswith(PNG)
    report = json.loads((folder / "concurrency.json").read_text())
    rows = {row["method"]: row for row in report["summary"]}
    for row in rows.values():
        assert row["concurrency"] == 2
        assert row["tokens/s"] > 0
        assert row["equal to plain"] == 1.0  # in exact precision
        assert row["first token(ms)"] <= row["first token(ms) (p95)"]
        assert row["step(ms)"] <= row["step(ms) (p95)"]
        assert row["reading"] > 0
        assert row["max_rss_mem(MiB)"] > 50
    assert rows["plain"]["tokens/step"] == 1.0
    return report, rows


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The folder that `peers --quick` wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("quick")
    exact = ("--precision", "exact", "--static-shapes", "none")
    done = laboratory("peers", "--quick", *exact, "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.mark.deep
def test_quick_measures_peers_as_it_measures_this_projects_methods(quick):
    report = json.loads((quick[0] / "report.json").read_text())
    assert report["failures"] == {}
    assert [row["method"] for row in report["summary"]] == list(QUICK_METHODS)
    for row in report["summary"]:
        assert row["output_size"] == QUICK.max_new_tokens
        assert row["tokens/s"] > 0
        assert row["max_rss_mem(MiB)"] > 50
        assert row["equal to plain"] == 1.0  # in exact precision
    by_method = {row["method"]: row for row in report["summary"]}
    # The same models with the same length: what is read from the peer's record is the same too. But
    # where only the main's own token has room, the peer drafts a draft token all the same.
    ours, theirs = (by_method[name]["tokens/main pass"] for name in ("constant-4", "genai-draft-4"))
    assert theirs == pytest.approx(ours, rel=0.02)
    own, peer = (
        [run["measurement"] for run in report["runs"] if run["method"] == name]
        for name in ("constant-4", "genai-draft-4")
    )
    for our, their in zip(own, peer, strict=True):
        more = 0 if our["rounds"][-1]["num_drafted"] else 1
        assert (their["drafted"], their["accepted"]) == (our["drafted"] + more, our["accepted"])
    rates = [run["accepted"] / run["drafted"] for run in peer]
    assert by_method["genai-draft-4"]["acceptance"] == pytest.approx(median(rates))


@pytest.mark.deep
def test_quick_says_whose_the_methods_are(quick):
    with (quick[0] / "runs.csv").open() as stream:
        frameworks = {row["framework"] for row in csv.DictReader(stream)}
    assert frameworks == {"ov-specdec", "openvino.genai"}
    environment = json.loads((quick[0] / "report.json").read_text())["environment"]
    assert environment["command"].startswith("python -m tests.benchmarks peers --quick")


@pytest.mark.deep
def test_sweeps_are_measured_and_drawn(tmp_path):
    done = laboratory("sweeps", "--quick", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "sweeps.json").read_text())["sweeps"]
    assert [length for length, _ in found["by_length"]] == list(QUICK_SWEEPS.lengths)
    assert [row[0] for row in found["by_temperature"]] == list(QUICK_SWEEPS.temperatures)
    assert set(found["pass_seconds"]) == {"main", "draft"}
    assert all(judged >= accepted for judged, accepted in found["by_position"])
    for name in PLOTS:
        content = (tmp_path / f"{name}.png").read_bytes()
        assert content.startswith(PNG)
        assert len(content) > 5000, name
        assert f"{name}.png" in done.stdout


@pytest.mark.deep
def test_it_runs_without_what_is_not_installed(tiny_pair, tmp_path):
    for module in MISSING:
        (tmp_path / f"{module}.py").write_text("raise ImportError('not here')\n")
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    shutil.copytree(MODEL / "checkpoint", main / "checkpoint")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = laboratory(
        *("peers", "--quick", "--main", main, "--draft", tiny_pair[1], "--output", tmp_path),
        *("--methods", "genai-plain,torch-plain,constant-4", "--rounds", 1),
        *("--max-new-tokens", 6),
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [row["method"] for row in report["summary"]] == ["plain", "constant-4"]
    for peer, package in (("genai-plain", "openvino-genai"), ("torch-plain", "torch")):
        assert f"- {peer}: {package} cannot be imported (not here): pip install" in done.stdout
    assert "no plots: plots need matplotlib: pip install" in done.stderr


@pytest.mark.deep
def test_loads_are_measured(tmp_path):
    methods = "constant-2,genai-plain,genai-draft-2,torch-plain"
    done = laboratory("peers", *LOADS, "--methods", methods, "--output", tmp_path)
    report, rows = read_loads(tmp_path, done)
    assert report["failures"] == {
        "torch-plain": "torch-plain does not answer many requests at once"
    }
    assert list(rows) == ["plain", "constant-2", "genai-plain", "genai-draft-2"]
    assert rows["genai-plain"]["acceptance"] is None
    own, peer = (
        [
            each
            for run in report["runs"]
            if run["method"] == method and not run["reads_only"]
            for each in run["served"]
        ]
        for method in ("constant-2", "genai-draft-2")
    )
    assert len(own) == 8  # four for each that may be under way
    # The same draft tokens, but for one that the peer drafts where there is room for none.
    for our, their in zip(own, peer, strict=True):
        assert their["accepted"] == our["accepted"]
        assert their["drafted"] - our["drafted"] in (0, 1)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    """The embedded pair in exact precision, with a folder for converted tokenizers."""
    main, draft = (str(embedded_folder(role)) for role in ("main", "draft"))
    scratch = str(tmp_path_factory.mktemp("scratch"))
    return Setup(main, draft, precision="exact", static_shapes="none", scratch=scratch)


@pytest.fixture(scope="module")
def plain(setup):
    return find_method("plain").build(setup)


@pytest.mark.parametrize("method", ["genai-plain", "genai-prompt-lookup-3", "genai-draft-2"])
def test_genai_generates_what_plain_decoding_does(method, setup, plain):
    expected = plain.run([5, 6, 7, 5, 6], 12).token_ids
    measurement = find_method(method).build(setup).run([5, 6, 7, 5, 6], 12)
    assert measurement.token_ids == expected
    assert 0 < measurement.first_token_seconds < measurement.seconds
    if method == "genai-prompt-lookup-3":
        assert measurement.main_seconds is None  # it does not tell
    else:
        assert 0 < measurement.main_seconds < measurement.seconds
    assert (measurement.drafted is not None) is (method == "genai-draft-2")
    assert (measurement.main_passes == 12) is (method == "genai-plain")


def test_a_tokenizer_is_converted_once_and_beside_the_model(tiny_pair, tmp_path):
    before = sorted(tiny_pair[0].iterdir())
    folder = model_with_tokenizer(tiny_pair[0], tmp_path / "main")
    converted = (folder / "openvino_tokenizer.xml").stat()
    assert model_with_tokenizer(tiny_pair[0], tmp_path / "main") == folder
    assert (folder / "openvino_tokenizer.xml").stat() == converted
    assert (folder / "openvino_detokenizer.xml").is_file()
    assert sorted(tiny_pair[0].iterdir()) == before


@pytest.mark.parametrize("method", ["genai-prompt-lookup-2"])
def test_an_engine_gives_each_request_what_it_gets_alone(method, setup, plain):
    prompts = [[5, 6, 7, 5, 6], [9, 10]]
    alone = [plain.run(prompt, 12).token_ids for prompt in prompts]
    served = serve_load(find_method(method).serve(setup), Load(prompts, [0.0, 0.0], 12, 2))
    assert [each.token_ids for each in served] == alone
    assert [sum(n for _, n in each.steps) for each in served] == [12, 12]


def test_torch_reports_passes_and_draft_tokens():
    setup = Setup(str(MODEL), str(MODEL))
    plain = find_method("torch-plain").build(setup).run([5, 6, 7], 12)
    assisted = find_method("torch-assisted").build(setup).run([5, 6, 7], 12)
    assert plain.main_passes == plain.generated_tokens == assisted.generated_tokens == 12
    assert assisted.main_passes < 12
    assert 0 < assisted.accepted <= assisted.drafted
    assert 0 < assisted.first_token_seconds < assisted.seconds
    assert assisted.draft_seconds > 0


def test_torch_goes_on_after_an_end_of_sequence_token(tmp_path):
    folder = shutil.copytree(MODEL / "checkpoint", tmp_path / "checkpoint")
    setup = Setup(str(tmp_path), str(tmp_path))
    before = find_method("torch-plain").build(setup).run([5, 6, 7], 8).token_ids
    for name in ("config.json", "generation_config.json"):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, "eos_token_id": before[2]}))
    for method in ("torch-plain", "torch-assisted"):
        assert find_method(method).build(setup).run([5, 6, 7], 8).token_ids == before


def test_torch_without_a_checkpoint_is_not_available(tiny_pair):
    with pytest.raises(BenchmarkError, match="no checkpoint: torch needs the main model's"):
        find_method("torch-plain").build(Setup(*map(str, tiny_pair)))


def test_passes_are_timed_behind_as_much_of_a_prompt_as_there_is_room_for():
    model = ScriptedModel(counting, max_length=8)
    assert measure._seconds(model, list(range(20)), 4) > 0
    assert model.passes[:2] == [8, 4]


def test_acceptance_by_position_counts_only_draft_tokens_that_were_reached():
    rounds = [
        RoundStats(0, 0, 1, 0.0, 0.1, 0.0, 0.1),
        RoundStats(3, 0, 1, 0.0, 0.1, 0.0, 0.1),
        RoundStats(3, 1, 2, 0.0, 0.1, 0.0, 0.1),
        RoundStats(3, 3, 4, 0.0, 0.1, 0.0, 0.1),
        RoundStats(1, 1, 2, 0.0, 0.1, 0.0, 0.1),
    ]
    assert acceptance_by_position(rounds) == [(4, 3), (2, 1), (1, 1)]


@pytest.mark.parametrize("method", ["genai-draft-4", "torch-assisted"])
def test_peers_want_one_tokenizer(method):
    with pytest.raises(BenchmarkError, match="tokenizers differ"):
        find_method(method).build(Setup(str(MODEL), str(MODEL), pairing="retokenize"))


def test_it_fails_where_nothing_ran(tiny_pair, tmp_path):
    done = run(
        *("peers", "--quick", "--main", tiny_pair[0], "--draft", tiny_pair[1]),
        *("--methods", "plain", "--property", "NO_SUCH_PROPERTY=1"),
        *("--output", tmp_path),
        main=main,
    )
    assert done.returncode == 2
    assert "NO_SUCH_PROPERTY" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("error: no method ran")


@pytest.mark.parametrize(
    ("options", "report"), [((), "report"), (("--concurrency", 1), "concurrency")]
)
def test_an_interrupted_run_reports_what_it_measured(
    options, report, tiny_pair, tmp_path, monkeypatch
):
    answers = []

    def interrupted(self, request, timeout):
        if len(answers) == 4:  # loading, warming up, two runs
            raise KeyboardInterrupt
        answers.append(ask(self, request, timeout))
        return answers[-1]

    ask = WorkerProcess.ask
    monkeypatch.setattr(WorkerProcess, "ask", interrupted)
    done = run(
        *("peers", "--quick", "--main", tiny_pair[0], "--draft", tiny_pair[1]),
        *("--methods", "plain", "--rounds", 3, "--output", tmp_path, *options),
        main=main,
    )
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == f"interrupted: 2 runs are written to {tmp_path}"
    assert "interrupted True" in done.stdout
    assert len(json.loads((tmp_path / f"{report}.json").read_text())["runs"]) == 2


def test_mixed_prompts_have_all_lengths():
    tokenizer = load_tokenizer(embedded_folder("main"))
    mixed = mixed_prompts(tokenizer, ["def f(x):", "class A:"])
    assert mixed == mixed_prompts(tokenizer, ["def f(x):", "class A:"])
    lengths = [len(ids) for ids in mixed]
    assert len(set(lengths)) == MIX_SIZE
    assert (min(lengths), max(lengths)) == MIX_TOKENS
    assert lengths != sorted(lengths)
    assert tokenizer.decode(mixed[1]).endswith("class A:")


def test_prompts_are_filled_up_from_the_left(tiny_pair):
    tokenizer = load_tokenizer(tiny_pair[0])
    (plain,) = encode_prompts(tokenizer, ["def f(x):"], None)
    (filled,) = encode_prompts(tokenizer, ["def f(x):"], 200)
    assert len(filled) == 200
    assert filled[-len(plain) :] == plain
    assert len(set(filled)) > 20
    with pytest.raises(OptionError, match="--context 2 must be from"):
        encode_prompts(tokenizer, ["def f(x):"], 2)


BAD_INPUT = {
    "unknown method": (["--methods", "plain,fast"], "method 'fast' does not exist: there are"),
    "unknown baseline": (["--baseline", "fast"], "method 'fast' does not exist"),
    "no rounds": (["--rounds", "0"], "--rounds 0 must be a whole number"),
    "no time": (["--timeout", "0"], "--timeout 0"),
    "no context": (["--context", "0"], "--context 0"),
    "too long": (["--context", "2000"], "are more than the model's context of 2048"),
    "no draft": (["--main", "."], "no draft model for main '.': give --draft"),
    "no place": (["--output", f"{os.devnull}/x"], "cannot be written (Not a directory)"),
    "no requests": (["--concurrency", "1,0"], "--concurrency 1,0 must be whole numbers above 0"),
    "no numbers": (["--concurrency", "few"], "--concurrency few must be"),
    "no arrivals": (
        ["--concurrency", "2", "--arrivals", "poisson:0"],
        "--arrivals poisson:0 must be 'together' or 'poisson:RATE'",
    ),
    "no rate": (["--concurrency", "2", "--arrivals", "often"], "--arrivals often must be"),
    "mix alone": (["--mix"], "--mix has no effect without --concurrency"),
    "arrivals alone": (["--arrivals", "poisson:3"], "has no effect without --concurrency"),
    "prefill alone": (["--max-prefill-tokens-per-step", "8"], "has no effect without"),
    "two lengths": (
        ["--concurrency", "2", "--mix", "--context", "40"],
        "--mix contradicts --context 40",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_before_anything_runs(case, tmp_path):
    arguments, complaint = BAD_INPUT[case]
    done = run("peers", *arguments, main=main, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert complaint in done.stderr
    assert not list(tmp_path.iterdir())
