"""Choice of the KV backend, states that cannot be trimmed, and devices this machine lacks."""

import json

import numpy as np
import openvino as ov
import pytest
from huggingface_hub.utils import filter_repo_objects
from openvino import opset13 as ops

from ov_specdec import DeviceError, ModelError, OptionError, SpeculativePipeline
from ov_specdec.generation.pipeline import check_devices
from ov_specdec.graph.paging import sequence_axes
from ov_specdec.models import prepare
from ov_specdec.models.devices import Device, RuntimeConfig, find_device
from ov_specdec.models.exported import open_exported, read_ir
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import HUB_FILES, locate
from tests.support.tiny import save_stateless_ir


def model_with_state(name: str, shape: list[int]) -> ov.Model:
    """A model over token ids that keeps one state of the given shape (-1: any size)."""
    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    ids.output(0).tensor.set_names({"input_ids"})
    initial = ops.constant(np.zeros([max(axis, 0) for axis in shape], np.float32))
    read = ops.read_value(initial, name, np.float32, ov.PartialShape(shape))
    total = ops.add(ops.convert(ids, "f32"), ops.reduce_sum(read, np.array([0, 1, 2]), False))
    total.output(0).tensor.set_names({"logits"})
    assign = ops.assign(read, name)
    return ov.Model([ops.result(total)], [assign], [ids], "made by hand")


@pytest.mark.parametrize(
    "name", ["../typo", "models/-x", "a/b.git", "~nosuch/x", "nowhere", "a/b/c"]
)
def test_what_is_no_folder_and_no_name_on_the_hub_is_refused(name):
    what = "is not a folder here.* owner/model" if "/" not in name else "does not exist"
    with pytest.raises(ModelError, match=f"'{name}' {what}"):
        locate(name)


def test_a_folder_without_a_model_is_not_to_be_exported(tmp_path):
    with pytest.raises(ModelError, match=r"holds no model: give the folder that holds openvino"):
        locate(tmp_path)
    with pytest.raises(ModelError, match=r"test_loading.py' is not a folder: give the folder"):
        locate(__file__)
    file = tmp_path / "a.Q8_0.gguf"
    file.touch()
    for place, what in (
        (tmp_path, "holds GGUF files"),
        (file, "is a GGUF"),
        ("x.gguf", "is a GGUF"),
    ):
        with pytest.raises(ModelError, match=f"'{place}' {what}.*export the original model from"):
            locate(place)


def test_weights_of_other_frameworks_are_not_downloaded():
    needed = [
        *("openvino_model.xml", "openvino_decoder_model.bin", "openvino_tokenizer.xml"),
        *("config.json", "tokenizer.json", "chat_template.jinja"),
        "additional_chat_templates/tool_use.jinja",
    ]
    others = ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.safetensors"]
    assert list(filter_repo_objects([*needed, *others], allow_patterns=HUB_FILES)) == needed


def test_the_token_axis_of_a_kv_state_is_its_only_dynamic_one():
    assert sequence_axes(model_with_state("key.0", [-1, 4, -1])) == {"key.0": 2}
    assert sequence_axes(model_with_state("conv_states.3", [-1, 64, 4])) == {}
    model = model_with_state("key.3", [-1, -1, -1])
    with pytest.raises(ModelError, match=r"state 'key.3' .* cannot be trimmed"):
        sequence_axes(model)


def test_an_ir_without_states_is_refused(tmp_path):
    save_stateless_ir(tmp_path)
    folder = ModelFolder(tmp_path, 256, None, frozenset())
    with pytest.raises(ModelError, match="not a stateful decoder: export it with"):
        read_ir(folder)


def no_attention(monkeypatch):
    """Models that cannot be paged; what is said of it."""

    def fail(model):
        raise ModelError("this model cannot take a paged KV cache (no attention found)")

    monkeypatch.setattr(prepare, "to_paged", fail)
    return "no attention found"


def no_paged_compilation(monkeypatch):
    """A machine on which paged models do not compile; what it says."""
    compile_model = ov.Core.compile_model

    def refuse(core, model, *arguments):
        if "past_lens" in {port.any_name for port in model.inputs}:
            raise RuntimeError("Exception from src:\nPagedAttention is not implemented")
        return compile_model(core, model, *arguments)

    monkeypatch.setattr(ov.Core, "compile_model", refuse)
    return "PagedAttention is not implemented"


@pytest.mark.parametrize("fail", [no_attention, no_paged_compilation])
def test_auto_falls_back_to_the_stateful_cache_unless_asked_not_to(tiny_pair, monkeypatch, fail):
    options = {"max_new_tokens": 20, "ignore_eos": True}
    with SpeculativePipeline(*tiny_pair, precision="exact") as paged:
        assert (paged.main.kv, paged.main.reason[:14]) == ("paged", "drops rejected")
        expected = paged.generate("def", **options).token_ids
    reason = fail(monkeypatch)
    with SpeculativePipeline(*tiny_pair, precision="exact") as pipeline:
        for model in (pipeline.main, pipeline.draft):
            assert model.kv == "stateful"
            assert reason in model.reason
        assert pipeline.generate("def", **options).token_ids == expected
    with pytest.raises((DeviceError, ModelError), match=reason):
        SpeculativePipeline(*tiny_pair, kv="paged")


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config.json", {"original_max_position_embeddings": "far"}, "embeddings as 'far'"),
        ("config.json", {"n_ctx": -1}, "n_ctx as -1"),
        ("config.json", {"text_config": ["a"]}, r"text_config as \['a'\] \(input"),
        ("generation_config.json", {"eos_token_id": [1, "x"]}, r"eos_token_id as \[1, 'x'\]"),
    ],
)
def test_a_configuration_with_no_number_is_refused_by_name(tmp_path, file, content, complaint):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=complaint):
        ModelFolder.read(tmp_path)


class FakeCore:
    """A machine with two GPUs and an NPU, which no test machine has."""

    available_devices: tuple[str, ...] = ("CPU", "GPU.0", "GPU.1", "NPU")

    def get_property(self, device, name):
        return {"FULL_DEVICE_NAME": f"Fake {device}", "OPTIMIZATION_CAPABILITIES": ["FP16"]}[name]


@pytest.fixture
def with_gpus(monkeypatch):
    """The package on that machine; nothing can be compiled there."""
    monkeypatch.setattr("ov_specdec.models.devices.openvino_core", FakeCore)


def test_devices_that_were_never_run_take_the_stateful_cache(tiny_pair, request):
    source = open_exported(tiny_pair[0])
    request.getfixturevalue("with_gpus")
    kv, why, _ = prepare.choose_backend(source, RuntimeConfig("NPU"), 100)
    assert (kv, why) == ("stateful", "a paged KV cache has not been run on NPU")
    assert find_device("GPU.1").supports_paged


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *(("CPU", "CPU"), ("GPU", "GPU.0"), ("GPU.1", "GPU.1"), ("NPU", "NPU")),
        *(("AUTO", "GPU.0"), ("AUTO:CPU,GPU", "CPU"), ("AUTO:GPU.7,GPU.1", "GPU.1")),
        *(("cpu", "CPU"), ("gpu", "GPU.0")),
    ],
)
def test_devices_are_found_by_their_names(with_gpus, name, found):
    assert find_device(name).name == found


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        *((name, rf"device '{name}' .* CPU, GPU.0, GPU.1") for name in ("TPU", "GPU.2", "")),
        ("AUTO:TPU", "device 'AUTO:TPU' .* CPU, GPU.0, GPU.1"),
        ("HETERO:GPU,CPU", "'HETERO:GPU,CPU' spreads a model .* name one of them"),
    ],
)
def test_other_devices_are_refused(with_gpus, name, complaint):
    with pytest.raises(DeviceError, match=complaint):
        find_device(name)


@pytest.mark.parametrize(
    ("options", "computes", "keeps"),
    [
        *(({}, "f16", "f16"), ({"precision": "f32"}, "f32", "f32")),
        ({"precision": "exact"}, "f32", "f32"),
        ({"properties": {"INFERENCE_PRECISION_HINT": "f32"}}, "f32", "f32"),
        ({"properties": {"EXECUTION_MODE_HINT": "ACCURACY"}}, "f32", "f32"),
        ({"properties": {"KV_CACHE_PRECISION": "u8"}}, "f16", "u8"),
    ],
)
def test_a_gpu_is_told_the_precision_of_its_caches(with_gpus, options, computes, keeps):
    properties = RuntimeConfig("GPU", num_threads=2, **options).openvino_properties()
    assert properties["INFERENCE_PRECISION_HINT"] == computes
    assert properties["KV_CACHE_PRECISION"] == keeps
    assert not {"KEY_CACHE_QUANT_MODE", "INFERENCE_NUM_THREADS"} & properties.keys()


@pytest.mark.parametrize(
    ("capability", "options", "keeps"),
    [
        *(("INT8", {}, "f16"), ("BF16", {}, None), ("BF16", {"precision": "f32"}, "f16")),
        *(("INT8", {"precision": "exact"}, "f32"), ("BF16", {"precision": "bf16"}, None)),
        ("INT8", {"properties": {"KV_CACHE_PRECISION": "u8"}}, "u8"),
        ("INT8", {"properties": {"EXECUTION_MODE_HINT": "ACCURACY"}}, None),
    ],
)
def test_a_cpu_that_computes_in_f32_keeps_caches_in_f16(monkeypatch, capability, options, keeps):
    cpu = Device("CPU", "a CPU", ("FP32", capability))
    monkeypatch.setattr("ov_specdec.models.devices.find_device", lambda name: cpu)
    properties = RuntimeConfig(**options).openvino_properties()
    assert properties.get("KV_CACHE_PRECISION") == keeps


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"static_shapes": [4]}, r"static_shapes=\[4\] cannot be used on GPU"),
        ({"encoder_device": "TPU"}, "device 'TPU' is not available"),
        ({"properties": {"INFERENCE_PRECISION_HINT": "bf16"}}, "PRECISION_HINT=bf16 does not run"),
        ({"num_threads": 2}, "num_threads=2 has no effect on GPU"),
        ({"properties": {"KV_CACHE_PRECISION": "f32"}}, "KV_CACHE_PRECISION=f32 does not run on"),
        (
            {"precision": "f32", "properties": {"KV_CACHE_PRECISION": "u8"}},
            "KV_CACHE_PRECISION=u8 does not run on GPU.0 .*: use f32$",
        ),
        ({"precision": "bf16"}, r"'bf16' is not offered by GPU\.0 .*FP16"),
        ({"device": "NPU", "kv": "paged"}, "a paged KV cache has not been run on NPU"),
        ({"device": "CPU", "draft_device": "TPU"}, "device 'TPU' is not available"),
    ],
)
def test_what_a_device_does_not_run_is_refused_before_models_are_read(
    with_gpus, monkeypatch, options, complaint
):
    monkeypatch.setattr("ov_specdec.generation.pipeline.open_exported", None)
    with pytest.raises((OptionError, DeviceError), match=complaint):
        SpeculativePipeline(**{"device": "GPU", **options})


def test_threads_may_be_given_for_a_draft_on_cpu(with_gpus):
    config = RuntimeConfig("GPU", num_threads=2)
    check_devices([config, RuntimeConfig("CPU", num_threads=2)])
    with pytest.raises(OptionError, match="num_threads=2 has no effect on GPU"):
        check_devices([config])


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_states_that_a_gpu_compresses_cannot_be_read(with_gpus, kind):
    compressed = {"KV_CACHE_PRECISION": kind}
    assert not RuntimeConfig("GPU", properties=compressed).has_readable_states
    assert RuntimeConfig("GPU").has_readable_states
    assert RuntimeConfig("CPU", properties=compressed).has_readable_states
