"""The laboratory's `peers` and `sweeps`, end to end and in parts. Nothing here checks a speed."""

import csv
import json
import os
import shutil
import sys
from pathlib import Path
from statistics import median

import pytest

from ov_specdec import RoundStats
from ov_specdec.bench.load import Load, serve_load
from ov_specdec.bench.plan import QUICK
from ov_specdec.bench.setup import Setup
from ov_specdec.errors import BenchmarkError
from ov_specdec.loading.locate import embedded_folder
from tests.bench_reports import LOADS, PNG, read_loads, run_apart
from tests.benchmarks.frameworks.genai import model_with_tokenizer
from tests.benchmarks.frameworks.methods import ALL
from tests.benchmarks.sweep import measure
from tests.benchmarks.sweep.measure import QUICK as QUICK_SWEEPS
from tests.benchmarks.sweep.measure import acceptance_by_position
from tests.fakes import ScriptedModel, counting

MODEL = Path(__file__).parent.parent / "models" / "draft"
PLOTS = ("speed-by-length", "temperature", "pass-cost", "acceptance-by-position", "timeline")
MISSING = ("matplotlib", "openvino_genai", "torch")


def laboratory(*arguments, **settings):
    return run_apart(sys.executable, "-m", "tests.benchmarks", *arguments, **settings)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The folder that `peers --quick` wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("quick")
    exact = ("--precision", "exact", "--fixed-sizes", "none")
    done = laboratory("peers", "--quick", *exact, "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.mark.deep
def test_quick_measures_peers_as_it_measures_this_projects_methods(quick):
    report = json.loads((quick[0] / "report.json").read_text())
    assert report["failures"] == {}
    assert [row["method"] for row in report["summary"]] == list(ALL.quick)
    for row in report["summary"]:
        assert row["output_size"] == QUICK.max_new_tokens
        assert row["tokens/s"] > 0
        assert row["max_rss_mem(MiB)"] > 50
        assert row["equal to plain"] == 1.0  # in exact precision
    by_method = {row["method"]: row for row in report["summary"]}
    # The same models with the same length: what is read from the peer's record is the same too. But
    # where only the main's own token has room, the peer drafts a candidate all the same.
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
    # The same candidates, but for one that the peer drafts where there is room for none.
    for our, their in zip(own, peer, strict=True):
        assert their["accepted"] == our["accepted"]
        assert their["drafted"] - our["drafted"] in (0, 1)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    """The embedded pair in exact precision, with a folder for converted tokenizers."""
    main, draft = (str(embedded_folder(role)) for role in ("main", "draft"))
    scratch = str(tmp_path_factory.mktemp("scratch"))
    return Setup(main, draft, precision="exact", fixed_sizes="none", scratch=scratch)


@pytest.fixture(scope="module")
def plain(setup):
    return ALL.find("plain").build(setup)


@pytest.mark.parametrize("method", ["genai-plain", "genai-prompt-lookup-3", "genai-draft-2"])
def test_genai_generates_what_plain_decoding_does(method, setup, plain):
    expected = plain.run([5, 6, 7, 5, 6], 12).token_ids
    measurement = ALL.find(method).build(setup).run([5, 6, 7, 5, 6], 12)
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
    served = serve_load(ALL.find(method).serve(setup), Load(prompts, [0.0, 0.0], 12, 2))
    assert [each.token_ids for each in served] == alone
    assert [sum(n for _, n in each.steps) for each in served] == [12, 12]


def test_torch_reports_passes_and_candidates():
    setup = Setup(str(MODEL), str(MODEL))
    plain = ALL.find("torch-plain").build(setup).run([5, 6, 7], 12)
    assisted = ALL.find("torch-assisted").build(setup).run([5, 6, 7], 12)
    assert plain.main_passes == plain.generated_tokens == assisted.generated_tokens == 12
    assert assisted.main_passes < 12
    assert 0 < assisted.accepted <= assisted.drafted
    assert 0 < assisted.first_token_seconds < assisted.seconds
    assert assisted.draft_seconds > 0


def test_torch_goes_on_after_an_end_of_sequence_token(tmp_path):
    folder = shutil.copytree(MODEL / "checkpoint", tmp_path / "checkpoint")
    setup = Setup(str(tmp_path), str(tmp_path))
    before = ALL.find("torch-plain").build(setup).run([5, 6, 7], 8).token_ids
    for name in ("config.json", "generation_config.json"):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, "eos_token_id": before[2]}))
    for method in ("torch-plain", "torch-assisted"):
        assert ALL.find(method).build(setup).run([5, 6, 7], 8).token_ids == before


def test_torch_without_a_checkpoint_is_not_available(tiny_pair):
    with pytest.raises(BenchmarkError, match="no checkpoint: torch needs the main model's"):
        ALL.find("torch-plain").build(Setup(*map(str, tiny_pair)))


def test_passes_are_timed_behind_as_much_of_a_prompt_as_there_is_room_for():
    model = ScriptedModel(counting, max_length=8)
    assert measure._seconds(model, list(range(20)), 4) > 0
    assert model.passes[:2] == [8, 4]


def test_acceptance_by_position_counts_only_candidates_that_were_reached():
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
        ALL.find(method).build(Setup(str(MODEL), str(MODEL), pairing="retokenize"))


def test_all_methods_of_groups_exist():
    for name in ALL.groups["all"]:
        assert ALL.find(name).name == name
