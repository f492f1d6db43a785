"""Methods in processes that die, and other frameworks beside this project. No speed is checked."""

import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ov_specdec.errors import OptionError
from ov_specdec.loading.locate import embedded_folder
from tests.benchmarks.peers import worker
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks.genai import model_with_tokenizer
from tests.benchmarks.peers.load import Load, Progress, serve_load
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.methods import find_method
from tests.benchmarks.peers.own import own
from tests.benchmarks.peers.process import WorkerProcess, load_request
from tests.benchmarks.peers.setup import Setup

MODEL = Path(__file__).parent.parent / "models" / "draft"


class FakeEngine:
    """Gives each request two tokens at each other step, and counts those under way."""

    def __init__(self):
        self.left = {}
        self.most = self.num_steps = 0
        self.added = []

    def add(self, number, prompt_ids, max_new_tokens):
        self.added.append((number, list(prompt_ids), self.num_steps))
        self.left[number] = max_new_tokens
        self.most = max(self.most, len(self.left))

    def step(self):
        self.num_steps += 1
        if self.num_steps % 2:
            return
        for number in list(self.left):
            num_tokens = min(2, self.left[number])
            self.left[number] -= num_tokens
            if self.left[number]:
                yield Progress(number, [7] * num_tokens, has_ended=False)
            else:
                del self.left[number]
                yield Progress(number, [7] * num_tokens, True, drafted=8, accepted=3)


def test_a_load_is_served_to_its_end():
    engine = FakeEngine()
    served = serve_load(engine, Load([[1], [2, 2], [3]], 5))
    assert engine.added == [(0, [1], 0), (1, [2, 2], 0), (2, [3], 0)]
    assert engine.most == 3
    assert all(each.token_ids == [7] * 5 for each in served)
    assert all([n for _, n in each.steps] == [2, 2, 1] for each in served)
    assert (served[0].drafted, served[0].accepted) == (8, 3)


def script(code):
    return WorkerProcess((sys.executable, "-c", code))


def test_a_process_answers():
    code = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    with script(code) as process:
        assert process.ask({"n": 1}, 30) == {"n": 1}
        assert process.ask({"n": 2}, 30) == {"n": 2}


def test_an_error_in_an_answer_leaves_the_process_usable():
    code = (
        "import json\nfor answer in ({'error': 'no such thing'}, {'n': 2}):\n"
        "    input(); print(json.dumps(answer), flush=True)"
    )
    with script(code) as process:
        with pytest.raises(BenchmarkError, match=r"^no such thing$"):
            process.ask({}, 30)
        assert process.ask({}, 30) == {"n": 2}


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


def test_a_process_that_hangs_is_stopped():
    with script("import time; time.sleep(600)") as process:
        with pytest.raises(BenchmarkError, match="no answer within 0 s: it was stopped"):
            process.ask({}, 0.2)
        with pytest.raises(BenchmarkError, match="died"):
            process.ask({}, 30)


def serve(*requests):
    answers = io.StringIO()
    worker.serve([json.dumps(request) for request in requests], answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_a_worker_loads_runs_and_names_what_goes_wrong(tiny_pair):
    setup = Setup(*map(str, tiny_pair), precision="exact")
    generation = {"prompt_ids": [5, 6, 7], "max_new_tokens": 8}
    early, unknown, loaded, run_, too_long = serve(
        generation,
        load_request("fastest", setup),
        load_request("constant-3", setup),
        generation,
        {"prompt_ids": [5] * 300, "max_new_tokens": 8},
    )
    assert early == {"error": "the first request must load a method"}
    assert "method 'fastest' does not exist" in unknown["error"]
    assert loaded["loaded"]["seconds"] > 0
    measurement = Measurement(**run_["measurement"])
    assert len(measurement.token_ids) == 8
    assert measurement.drafted > 0
    assert measurement.speed > 0
    assert 0 < measurement.first_token_seconds < measurement.seconds
    assert 2**20 < run_["memory"] <= run_["peak_memory"]
    assert "300 tokens" in too_long["error"]


def test_methods_are_found_by_family_and_length():
    assert find_method("constant-12").length == 12
    assert (
        find_method("genai-prompt-lookup-3").family is find_method("genai-prompt-lookup-5").family
    )
    assert find_method("plain").length is None


@pytest.mark.parametrize("name", ["constant", "constant-0", "constant-257", "plain-3", "x"])
def test_a_method_that_does_not_exist_is_refused(name):
    with pytest.raises(OptionError, match=f"method '{name}' does not exist"):
        find_method(name)


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
    served = serve_load(find_method(method).serve(setup), Load(prompts, 12))
    assert [each.token_ids for each in served] == alone
    assert [sum(n for _, n in each.steps) for each in served] == [12, 12]


def test_torch_reports_passes_and_draft_tokens():
    setup = Setup(str(MODEL), str(MODEL))
    plain = find_method("torch-plain").build(setup).run([5, 6, 7], 12)
    assisted = find_method("torch-assisted").build(setup).run([5, 6, 7], 12)
    assert plain.main_passes == len(plain.token_ids) == len(assisted.token_ids) == 12
    assert assisted.main_passes < 12
    assert 0 < assisted.accepted <= assisted.drafted
    assert 0 < assisted.first_token_seconds < assisted.seconds


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


@pytest.mark.parametrize("method", ["genai-draft-4", "torch-assisted"])
def test_peers_want_one_tokenizer(method):
    with pytest.raises(BenchmarkError, match="tokenizers differ"):
        find_method(method).build(Setup(str(MODEL), str(MODEL), pairing="retokenize"))


def test_llama_cpp_is_told_where_to_begin_and_stopped(monkeypatch, tmp_path):
    """By a fake of its interface: the package is built from source, and is not installed here."""
    calls = []

    class Llama:
        def __init__(self, path, **settings):
            calls.append((path, settings.get("draft_model")))

        def reset(self):
            calls.append("reset")

        def generate(self, tokens, temp):
            assert temp == 0.0
            yield from range(len(tokens), 100)

    speculative = SimpleNamespace(LlamaPromptLookupDecoding=lambda num_pred_tokens: num_pred_tokens)
    package = SimpleNamespace(Llama=Llama, llama_speculative=speculative)
    monkeypatch.setitem(sys.modules, "llama_cpp", package)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", speculative)
    method = find_method("llama-cpp-prompt-lookup-3")
    measurement = method.build(Setup("main", gguf="m.gguf")).run([5, 6], 4)
    assert measurement.token_ids == [2, 3, 4, 5]
    assert 0 < measurement.first_token_seconds <= measurement.seconds
    assert calls == [("m.gguf", 3), "reset"]
    with pytest.raises(BenchmarkError, match="give --gguf"):
        find_method("llama-cpp-plain").build(Setup("main"))


def test_a_pairing_is_for_the_methods_that_have_one(tiny_pair):
    setup = Setup(str(tiny_pair[0]), str(embedded_folder("draft")), pairing="retokenize")
    assert own("model")(setup, 2)._pipeline.pairing == "retokenize"
    assert own("suffix")(setup, 2)._pipeline.pairing is None
