"""The embedded pair on a GPU; what is marked `deep` takes minutes on the simulator."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import openvino as ov
import pytest

import ov_specdec.models.compile as compiling
from ov_specdec import SpeculativePipeline, SpeechPipeline
from ov_specdec.models.devices import block_memory, find_device, openvino_core
from ov_specdec.models.locate import embedded_folder
from ov_specdec.runner.base import Span
from ov_specdec.runner.block_memory import HostMemory, RemoteMemory, bytes_of_block
from tests.gpu.texts import NUM_TOKENS, alone, ids, plain_on_cpu, together, verifies
from tests.support.command_line import run
from tests.support.prompts import PROMPTS

DEEP = pytest.mark.deep


@pytest.fixture(scope="module", params=["paged", pytest.param("stateful", marks=DEEP)])
def gpu(request, open_on_gpu):
    """The embedded pair in f32 on each KV cache."""
    with open_on_gpu(kv=request.param) as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def code(texts_of_cpu):
    """The tokens of a long text."""
    text = Path(compiling.__file__).read_text(encoding="utf-8")
    with SpeculativePipeline(embedded_folder("draft"), drafter="none") as pipeline:
        return pipeline.tokenizer.encode(text)


@pytest.mark.parametrize("length", [4, *(pytest.param(n, marks=DEEP) for n in (0, 1, 8))])
def test_texts_alone_and_together(gpu, length, texts_of_cpu):
    results = alone(gpu, length, PROMPTS[:6])
    assert ids(results) == texts_of_cpu[:6]
    assert verifies(results) is (length > 0)
    results = together(gpu, length)
    assert ids(results) == texts_of_cpu
    assert verifies(results) is (length > 0)
    most = max(round_.num_sequences for result in results for round_ in result.stats.rounds)
    assert (most == 1) is (gpu.main.kv == "stateful")
    assert {result.stats.max_sequences for result in results} == {1 if most == 1 else None}


@pytest.mark.parametrize("devices", [("GPU", "CPU"), pytest.param(("CPU", "GPU"), marks=DEEP)])
def test_models_may_run_on_two_devices(devices, open_on_gpu, texts_of_cpu):
    with open_on_gpu(device=devices[0], draft_device=devices[1]) as pipeline:
        results = together(pipeline, 4, PROMPTS[:8])
        assert ids(results) == texts_of_cpu[:8]
        assert verifies(results)
        assert [model.config.device for model in (pipeline.main, pipeline.draft)] == [*devices]


def number_sizes(pipeline):
    """Bytes of the numbers in the main model's KV cache."""
    tensors = pipeline.main.runner.memory.tensors.values()
    return {tensor.get_byte_size() / np.prod(tensor.get_shape()) for tensor in tensors}


def logits_after_a_rollback(pipeline):
    """Of tokens that read what lies before them in the KV cache, [6, vocab]."""
    runner = pipeline.main.runner
    slot = runner.open()
    runner.forward([Span(slot, range(300, 340), 1)])
    slot.rollback(21)
    return runner.forward([Span(slot, range(400, 406), 6)])[0].copy()


@DEEP
def test_the_default_precision_has_the_caches_that_go_with_it(open_on_gpu):
    draft = embedded_folder("draft")
    with open_on_gpu(draft, drafter="suffix", precision="default") as pipeline:
        assert verifies(alone(pipeline, 2, PROMPTS[3:6]))
        rounded = logits_after_a_rollback(pipeline)
        assert number_sizes(pipeline) == {2}
    with SpeculativePipeline(draft, drafter="none", precision="exact") as cpu:
        right = logits_after_a_rollback(cpu)
    assert np.abs(rounded - right).max() < 0.01 * np.ptp(right)


@DEEP
def test_long_prompts_and_what_they_share(gpu, code):
    prompts = [code[:150], code[:700], [*code[:690], 5, 6, 7]]
    results = [
        gpu.generate(prompt, max_new_tokens=16, num_assistant_tokens=4) for prompt in prompts
    ]
    assert ids(results) == plain_on_cpu(prompts, 16)
    cached = [result.stats.cached_tokens for result in results]
    assert cached[1] >= 150 and cached[2] >= 690


@DEEP
def test_saved_caches_are_loaded(open_on_gpu, code, tmp_path):
    prompt = code[:100]
    with open_on_gpu(kv="paged") as gpu:
        gpu.generate(prompt, max_new_tokens=8)
        gpu.save_cache(tmp_path / "cache.safetensors")
    with open_on_gpu(kv="paged") as other:
        other.load_cache(tmp_path / "cache.safetensors")
        result = other.generate(prompt, max_new_tokens=16, num_assistant_tokens=4)
    assert [result.token_ids] == plain_on_cpu([prompt], 16)
    assert result.stats.cached_tokens == 99


@pytest.mark.parametrize("kind", ["f32", pytest.param("f16", marks=DEEP)])
def test_what_is_copied_to_the_device_is_there_at_once(kind):
    shape = ov.PartialShape([-1, 4, 64, 16])
    port = SimpleNamespace(element_type=getattr(ov.Type, kind), partial_shape=shape)
    memory = RemoteMemory(openvino_core().get_default_context("GPU"))
    memory.allocate({"key_cache.0": port}, 33)
    assert not memory.read("key_cache.0", [0, 32]).any()
    rng = np.random.default_rng(1)
    for _ in range(300):
        source, target = rng.choice(33, 2, replace=False).tolist()
        content = rng.integers(0, 256, (1, bytes_of_block(port)), np.uint8)
        memory.write("key_cache.0", [source], content)
        assert np.array_equal(memory.read("key_cache.0", [source]), content)
        memory.copy(source, target)
        assert np.array_equal(memory.read("key_cache.0", [target]), content)


@DEEP
def test_ordinary_memory_would_lose_what_lies_before(open_on_gpu, texts_of_cpu, monkeypatch):
    assert isinstance(block_memory(find_device("GPU")), RemoteMemory)
    monkeypatch.setattr(compiling, "block_memory", lambda device: HostMemory())
    with open_on_gpu() as pipeline:
        assert ids(alone(pipeline, 0, PROMPTS[:2])) != texts_of_cpu[:2]


@DEEP
@pytest.mark.parametrize("kv", ["auto", "stateful"])
def test_default_options_run_past_the_first_trim(kv, compiled):
    """States of a stateful cache that the plugin compresses could not be read for one."""
    options = {"kv": kv, "profile": "none", "cache_dir": compiled}
    with SpeculativePipeline(device="GPU", **options) as pipeline:
        results = together(pipeline, 8, PROMPTS[:2])
    assert all(len(result.token_ids) == NUM_TOKENS for result in results)
    assert verifies(results)


@DEEP
def test_a_folder_of_compiled_models_tells_kv_precisions_apart(open_on_gpu):
    draft = embedded_folder("draft")
    types = []
    for properties in ({"KV_CACHE_PRECISION": "u8"}, {}):
        options = {"drafter": "none", "precision": "default", "properties": properties}
        with open_on_gpu(draft, **options) as pipeline:
            pipeline.generate(PROMPTS[0], max_new_tokens=2)
            types.append({t.element_type for t in pipeline.main.runner.memory.tensors.values()})
    assert types == [{ov.Type.i8}, {ov.Type.f16}]


@DEEP
def test_speech_and_translation_run_there(whisper, encoder_decoder, compiled):
    rng = np.random.default_rng(1)
    audio = (rng.normal(0.0, 0.1, 32_000).astype(np.float32), 16_000)
    models = (whisper.main, whisper.draft)
    heard = []
    for device in ("CPU", "GPU"):
        options = {"device": device, "precision": "exact", "cache_dir": compiled}
        with SpeechPipeline(*models, **options) as pipeline:
            heard.append(pipeline.transcribe(audio, temperature=0.0, num_assistant_tokens=3).text)
    assert heard[0] == heard[1]
    pair = encoder_decoder("t5")
    read = []
    for device in ("CPU", "GPU"):
        options = {"device": device, "precision": "exact", "cache_dir": compiled}
        with SpeculativePipeline(pair.main, drafter="suffix", **options) as pipeline:
            read.append(pipeline.generate([5, 6, 7], max_new_tokens=12, num_assistant_tokens=3))
    assert read[0].token_ids == read[1].token_ids


@DEEP
def test_check_agrees():
    done = run("check", "--device", "GPU")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 4 of 4 texts equal the CPU's") >= 10
    assert "WRONG" not in done.stdout
