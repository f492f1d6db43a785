"""`ov-specdec bench` end to end, and what it refuses. Nothing here checks a speed."""

import csv
import json
import os
import sysconfig
from pathlib import Path

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.load import Load, serve_load
from ov_specdec.bench.methods import OWN
from ov_specdec.bench.plan import QUICK
from ov_specdec.bench.process import WorkerProcess
from ov_specdec.bench.prompts import (
    MIX_SIZE,
    MIX_TOKENS,
    QUOTING,
    encode_prompts,
    mixed_prompts,
    read_prompts,
)
from ov_specdec.bench.setup import Setup
from ov_specdec.errors import OptionError
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.text.tokenizer import load_tokenizer
from tests.bench_reports import LOADS, PNG, read_loads, run_apart
from tests.command_line import run

COMMAND = str(Path(sysconfig.get_path("scripts")) / "ov-specdec")


def bench(*arguments, **settings):
    return run_apart(COMMAND, "bench", *arguments, **settings)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The folder that `ov-specdec bench --quick` wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("quick")
    done = bench("--quick", "--precision", "exact", "--fixed-sizes", "none", "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_quick_measures_every_method_of_its_plan(quick):
    report = json.loads((quick[0] / "report.json").read_text())
    assert report["failures"] == {}
    assert [row["method"] for row in report["summary"]] == list(OWN.quick)
    assert len(report["runs"]) == len(OWN.quick) * QUICK.num_prompts * QUICK.rounds
    for row in report["summary"]:
        assert row["output_size"] == QUICK.max_new_tokens
        assert row["tokens/s"] > 0
        assert row["max_rss_mem(MiB)"] > 50
        assert row["equal to plain"] == 1.0  # in exact precision
    by_method = {row["method"]: row for row in report["summary"]}
    assert by_method["plain"]["ratio to plain"] == 1.0
    assert by_method["plain"]["acceptance"] is None
    assert 0 < by_method["constant-4"]["acceptance"] < 1


def test_quick_writes_tables_in_every_format(quick):
    folder, done = quick
    assert (folder / "report.md").read_text() == done.stdout
    assert done.stdout.startswith("| method | tokens/s | ratio to plain | 1st_latency(ms) |")
    with (folder / "runs.csv").open() as stream:
        assert {row["framework"] for row in csv.DictReader(stream)} == {"ov-specdec"}
    with (folder / "summary.csv").open() as stream:
        assert [row["method"] for row in csv.DictReader(stream)] == list(OWN.quick)
    environment = json.loads((folder / "report.json").read_text())["environment"]
    assert environment["machine"]["cores"] >= 1
    assert environment["versions"]["openvino"]
    assert environment["command"].startswith("ov-specdec bench --quick")
    assert environment["properties"]["INFERENCE_PRECISION_HINT"] == "f32"


def test_quick_draws_speeds(quick):
    folder, done = quick
    content = (folder / "speed.png").read_bytes()
    assert content.startswith(PNG)
    assert len(content) > 5000
    assert "speed.png" in done.stderr


def test_it_runs_without_matplotlib(tiny_pair, tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = bench(
        *("--quick", "--main", tiny_pair[0], "--draft", tiny_pair[1], "--output", tmp_path),
        *("--methods", "constant-4", "--rounds", 1, "--max-new-tokens", 6),
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [row["method"] for row in report["summary"]] == ["plain", "constant-4"]
    assert "no plots: plots need matplotlib: pip install" in done.stderr
    assert not list(tmp_path.glob("*.png"))


def test_it_fails_where_nothing_ran(tiny_pair, tmp_path):
    done = run(
        *("bench", "--quick", "--main", tiny_pair[0], "--draft", tiny_pair[1]),
        *("--methods", "plain", "--property", "NO_SUCH_PROPERTY=1"),
        *("--output", tmp_path),
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
        *("bench", "--quick", "--main", tiny_pair[0], "--draft", tiny_pair[1]),
        *("--methods", "plain", "--rounds", 3, "--output", tmp_path, *options),
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: interrupted: 2 runs are written to {tmp_path}"
    assert "interrupted True" in done.stdout
    assert len(json.loads((tmp_path / f"{report}.json").read_text())["runs"]) == 2


@pytest.fixture(scope="module")
def setup():
    """The embedded pair in exact precision."""
    main, draft = (str(embedded_folder(role)) for role in ("main", "draft"))
    return Setup(main, draft, precision="exact", fixed_sizes="none")


@pytest.fixture(scope="module")
def plain(setup):
    return OWN.find("plain").build(setup)


def test_loads_are_measured(tmp_path):
    done = bench(*LOADS, "--methods", "constant-2", "--output", tmp_path)
    report, rows = read_loads(tmp_path, done)
    assert report["failures"] == {}
    assert list(rows) == ["plain", "constant-2"]
    served = [
        each
        for run in report["runs"]
        if run["method"] == "constant-2" and not run["reads_only"]
        for each in run["served"]
    ]
    assert len(served) == 8  # four for each that may be under way


def test_an_engine_gives_each_request_what_it_gets_alone(setup, plain):
    prompts = [[5, 6, 7, 5, 6], [9, 10]]
    alone = [plain.run(prompt, 12).token_ids for prompt in prompts]
    served = serve_load(OWN.find("constant-2").serve(setup), Load(prompts, [0.0, 0.0], 12, 2))
    assert [each.token_ids for each in served] == alone
    assert [sum(n for _, n in each.steps) for each in served] == [12, 12]


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
    tokenizer = SpeculativePipeline(tiny_pair[0], drafter="none").tokenizer
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
    "no tokens": (["--max-new-tokens", "0"], "--max-new-tokens 0"),
    "no time": (["--timeout", "0"], "--timeout 0"),
    "no context": (["--context", "0"], "--context 0"),
    "too long": (["--context", "2000"], "are more than the model's context of 2048"),
    "no draft": (["--main", "."], "no draft model for main '.': give --draft"),
    "no folder": (["--main", "nowhere", "--draft", "nowhere"], "'nowhere' is not a folder"),
    "no peers": (["--methods", "genai-plain"], "method 'genai-plain' does not exist"),
    "no file": (["--prompt-file", "nowhere"], "--prompt-file 'nowhere' cannot be read as text"),
    "empty file": (["--prompt-file", os.devnull], "holds no prompt"),
    "two sources": (["--prompts", "code", "--prompt-file", "x"], "or --prompt-file 'x', not both"),
    "no place": (["--output", f"{os.devnull}/x"], "cannot be written (Not a directory)"),
    "no requests": (["--concurrency", "1,0"], "--concurrency '1,0' must be whole numbers above 0"),
    "no numbers": (["--concurrency", "few"], "--concurrency few must be"),
    "no arrivals": (
        ["--concurrency", "2", "--arrivals", "poisson:0"],
        "--arrivals 'poisson:0' must be 'together' or 'poisson:RATE'",
    ),
    "no rate": (["--concurrency", "2", "--arrivals", "often"], "--arrivals often must be"),
    "mix alone": (["--mix"], "--mix has no effect without --concurrency"),
    "arrivals alone": (["--arrivals", "poisson:3"], "has no effect without --concurrency"),
    "prefill alone": (["--max-prefill-tokens-per-step", "8"], "has no effect without"),
    "two lengths": (
        ["--concurrency", "2", "--mix", "--context", "40"],
        "--mix contradicts --context 40",
    ),
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
