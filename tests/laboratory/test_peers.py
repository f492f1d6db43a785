"""Methods in processes that die, and other frameworks beside this project. No speed is checked."""

import io
import json
import sys
from dataclasses import asdict, replace

import pytest

from ov_specdec.models.locate import embedded_folder
from tests.benchmarks.peers import worker
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.load import Request, Served, decoding_speed, serve_load
from tests.benchmarks.peers.measurement import Ask, Measurement
from tests.benchmarks.peers.methods import Methods, find_method, load_engine
from tests.benchmarks.peers.process import WorkerProcess, load_request
from tests.benchmarks.peers.setup import Setup

pytestmark = pytest.mark.deep


def test_decoding_begins_where_all_requests_have_their_first_token():
    early = Served([], [(1.0, 1), (2.0, 3), (3.0, 2), (5.0, 2)])
    late = Served([], [(2.0, 1), (3.0, 4), (4.0, 1)])
    speed, begin = decoding_speed([early, late])
    assert (speed, begin) == ((2 + 2 + 4 + 1) / 3.0, 2.0)
    assert decoding_speed([Served([], [(1.0, 1)])]) == (0.0, 1.0)


def script(code):
    return WorkerProcess((sys.executable, "-c", code))


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (
            "input(); import sys; print('no memory', file=sys.stderr); sys.exit(3)",
            "died with exit status 3: no memory",
        ),
        ("input(); import os; os.kill(os.getpid(), 9)", "died with signal 9"),
        ("", "died with exit status 0"),
    ],
)
def test_a_process_that_dies_says_how(code, complaint):
    with script(code) as process:
        with pytest.raises(BenchmarkError, match=complaint):
            process.ask({}, 30)
        with pytest.raises(BenchmarkError, match="died"):
            process.ask({}, 30)


def serve(*requests):
    answers = io.StringIO()
    worker.serve([json.dumps(request) for request in requests], answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


def test_a_worker_loads_runs_and_names_what_goes_wrong(tiny_pair):
    setup = Setup(*map(str, tiny_pair), EXACT)
    generation = {"method": "constant-3", "ask": asdict(Ask([5, 6, 7], 8))}
    early, unknown, loaded, run_, too_long, memory, usual = serve(
        generation,
        load_request("fastest", setup),
        load_request("constant-3", setup),
        generation,
        {"method": "plain", "ask": asdict(Ask([5] * 300, 8))},
        {"memory": True},
        {"priority": "usual"},
    )
    assert early == {"error": "the first request must load a method"}
    assert "method 'fastest' does not exist" in unknown["error"]
    assert loaded["seconds"] > 0
    measurement = Measurement(**run_["measurement"])
    assert len(measurement.token_ids) == 8
    assert measurement.drafted > 0
    assert measurement.speed == 8 / measurement.seconds
    assert 0 < measurement.first_token_seconds < measurement.seconds
    assert "300 tokens" in too_long["error"]
    assert min(memory.values()) > 2**20
    assert usual == {}


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    """The embedded pair in exact precision, with a folder for converted tokenizers."""
    main, draft = (str(embedded_folder(role)) for role in ("main", "draft"))
    scratch = str(tmp_path_factory.mktemp("scratch"))
    return Setup(main, draft, EXACT, scratch, static_shapes="none")


@pytest.fixture(scope="module")
def methods(setup):
    return Methods(setup)


@pytest.mark.parametrize("method", ["genai-plain", "genai-prompt-lookup-3", "genai-draft-2"])
def test_genai_generates_what_plain_decoding_does(method, methods):
    ask = Ask([5, 6, 7, 5, 6], 12)
    expected = methods.run("plain", ask).token_ids
    measurement = methods.run(method, ask)
    assert measurement.token_ids == expected
    assert 0 < measurement.first_token_seconds < measurement.seconds
    assert (measurement.drafted is not None) is (method == "genai-draft-2")
    assert (measurement.main_passes == 12) is (method == "genai-plain")


@pytest.mark.parametrize("method", ["genai-prompt-lookup-2", "default"])
def test_an_engine_gives_each_request_what_it_gets_alone(method, setup, methods):
    prompts = [[5, 6, 7, 5, 6], [9, 10]]
    alone = [methods.run("plain", Ask(prompt, 12)).token_ids for prompt in prompts]
    engine = load_engine(method, replace(setup, max_batch_size=2, kv_cache_gb=1.0))
    requests = [Request(prompt, 12, find_method(method).length, "one") for prompt in prompts]
    for _ in range(2):
        served = serve_load(engine, requests)
        assert [each.token_ids for each in served] == alone
        assert [sum(n for _, n in each.steps) for each in served] == [12, 12]
