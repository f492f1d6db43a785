"""Methods in processes that die, and other frameworks beside this project. No speed is checked."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from lab.benchmarks.models import Models
from lab.benchmarks.peers.asks import Ask, BenchmarkError, Served, Setup, decoding_speed
from lab.benchmarks.peers.worker import Worker, WorkerProcess
from ov_specdec.models.locate import embedded_folder

pytestmark = pytest.mark.deep


def test_decoding_begins_where_all_requests_have_their_first_token():
    early = Served([], [(1.0, 1), (2.0, 3), (3.0, 2), (5.0, 2)])
    late = Served([], [(2.0, 1), (3.0, 4), (4.0, 1)])
    found = decoding_speed([early, late])
    assert found == {"speed": (2 + 2 + 4 + 1) / 3.0, "each": 9 / (3.0 + 2.0), "first": 2.0}
    none_later = decoding_speed([Served([], [(1.0, 1)])])
    assert none_later == {"speed": 0.0, "each": 0.0, "first": 1.0}


EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


def test_a_process_runs_methods_and_names_what_goes_wrong(tiny_pair):
    with WorkerProcess(Setup(Models(*tiny_pair, EXACT))) as process:
        with pytest.raises(BenchmarkError, match="method 'fastest' does not exist"):
            process.ask(Worker.load, "fastest")
        measurement = process.ask(Worker.run, "constant-3", Ask([5, 6, 7], 8))
        assert len(measurement.token_ids) == 8
        assert measurement.drafted > 0
        assert measurement.speed == 8 / measurement.seconds
        assert 0 < measurement.first_token_seconds < measurement.seconds
        with pytest.raises(BenchmarkError, match="300 tokens"):
            process.ask(Worker.run, "plain", Ask([5] * 300, 8))
        assert min(process.ask(Worker.memory).values()) > 2**20
        process.ask(Worker.change_priority, "usual")
        for _ in range(2):
            with pytest.raises(BenchmarkError, match="died with exit status 3"):
                process.ask(die)


def test_processes_of_others_import_nothing_of_this_project_but_its_errors():
    """Their memory is compared with ours."""
    modules = "sys, lab.benchmarks.peers.worker, lab.benchmarks.peers.genai"
    code = f"import {modules}; print(*(m for m in sys.modules if m.startswith('ov_specdec')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["ov_specdec", "ov_specdec.errors"], done.stderr


def die(_):
    os._exit(3)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    """The embedded pair in exact precision, with a folder for converted tokenizers."""
    models = Models(*map(embedded_folder, ("main", "draft")), EXACT)
    scratch = str(tmp_path_factory.mktemp("scratch"))
    return Setup(models, scratch, static_shapes="none")


@pytest.fixture(scope="module")
def methods(setup):
    return Worker(setup)


@pytest.mark.parametrize(
    "method",
    [
        *("genai-plain", "genai-plain-f16", "genai-prompt-lookup-3", "genai-draft-2"),
        "genai-confidence",
    ],
)
def test_genai_generates_what_plain_decoding_does(method, methods):
    ask = Ask([5, 6, 7, 5, 6], 12)
    expected = methods.run("plain", ask).token_ids
    measurement = methods.run(method, ask)
    assert measurement.token_ids == expected
    assert 0 < measurement.first_token_seconds < measurement.seconds
    assert (measurement.drafted is not None) is (method in ("genai-draft-2", "genai-confidence"))
    assert (measurement.main_passes == 12) is method.startswith("genai-plain")


@pytest.mark.parametrize("method", ["genai-prompt-lookup-2", "default"])
def test_an_engine_gives_each_request_what_it_gets_alone(method, setup, methods):
    prompts = [[5, 6, 7, 5, 6], [9, 10]]
    alone = [methods.run("plain", Ask(prompt, 12)).token_ids for prompt in prompts]
    together = Worker(replace(setup, max_batch_size=2, kv_cache_gb=1.0))
    asks = [Ask(prompt, 12, context="one") for prompt in prompts]
    for _ in range(2):
        served = together.serve(method, asks)
        assert [each.token_ids for each in served] == alone
        assert [sum(n for _, n in each.steps) for each in served] == [12, 12]
