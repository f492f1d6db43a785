"""Export through Optimum's own command, and what is said when it fails."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import version

import pytest

from ov_specdec import ExportError, SpeculativePipeline
from ov_specdec.models import export as export_module
from ov_specdec.models.export import (
    NEEDED_FILES,
    ORIGIN_FILE,
    Int4Options,
    export_model,
    python_with,
)
from ov_specdec.models.heads import Eagle3Config
from tests.support.command_line import run
from tests.support.kept import save_checkpoint as save_family
from tests.support.optimum import names, stub_optimum
from tests.support.tiny import save_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A Llama of hidden size 48 and an MLP of 96."""
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny-llama"
    save_checkpoint("llama", folder)
    return folder


def make_source(folder, **config):
    """A folder with what is looked at before an export."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").touch()
    return str(folder)


def test_a_checkpoint_is_exported_for_real_and_then_left_alone(checkpoint, tmp_path):
    first = export_model(str(checkpoint), tmp_path, "int8")
    assert first.is_new
    assert first.folder == tmp_path / "tiny-llama-int8"
    assert names(tmp_path) == ["tiny-llama-int8"]
    pipeline = SpeculativePipeline(first.folder, first.folder)
    result = pipeline.generate("def", max_new_tokens=8, ignore_eos=True)
    assert len(result.token_ids) == 8

    written = (first.folder / "openvino_model.bin").stat().st_mtime_ns
    second = export_model(str(checkpoint), tmp_path, "int8")
    assert not second.is_new
    assert (second.folder / "openvino_model.bin").stat().st_mtime_ns == written


@pytest.mark.deep
def test_an_encoder_decoder_is_exported_as_one(encoder_decoder, tmp_path):
    checkpoint = encoder_decoder("t5").checkpoint
    first = export_model(str(checkpoint), tmp_path, "int8")
    with SpeculativePipeline(first.folder, first.folder) as pipeline:
        assert len(pipeline.generate("def", max_new_tokens=8, ignore_eos=True).token_ids) == 8
    (first.folder / "openvino_encoder_model.bin").unlink()
    with pytest.raises(ExportError, match=r"no openvino_encoder_model.bin, so it is not usable"):
        export_model(str(checkpoint), tmp_path, "int8")


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"model_type": "llama"}, "text-generation"),
        ({"model_type": "bart", "is_encoder_decoder": True}, "text2text-generation"),
        ({"model_type": "whisper", "is_encoder_decoder": True}, "automatic-speech-recognition"),
    ],
)
def test_the_task_is_that_of_the_checkpoint(tmp_path, monkeypatch, config, task):
    source, asked = make_source(tmp_path / "x", **config), []
    monkeypatch.setattr(export_module, "run_optimum", lambda *given: asked.append(given))
    with pytest.raises(ExportError, match="is not usable"):
        export_model(source, tmp_path / "output", "int8")
    [(name, family, _, options, _)] = asked
    assert (name, family) == (source, config["model_type"])
    assert options[:2] == ["--task", f"{task}-with-past"]


def test_marians_tokenizer_is_refused(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "source.spm").touch()
    with pytest.raises(ExportError, match="Marian's tokenizer"):
        export_model(str(tmp_path), tmp_path / "output", "int8")


FULL = """
import pathlib, sys
pathlib.Path(sys.argv[-1]).mkdir()
(pathlib.Path(sys.argv[-1]) / "openvino_model.xml").write_text("half")
sys.exit("OSError: [Errno 28] No space left on device")
"""


def test_a_failure_is_told_by_optimum_and_leaves_nothing_behind(monkeypatch, tmp_path, capfd):
    stub_optimum(tmp_path / "stub", FULL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    complaint = (
        "x: Optimum failed with exit status 1, and says why above: .* transformers='VERSION'"
    )
    with pytest.raises(ExportError, match=complaint):
        export_model(make_source(tmp_path / "x"), tmp_path / "models", "fp16")
    assert "No space left on device" in capfd.readouterr().err
    assert names(tmp_path / "models") == []


def test_a_model_that_the_hub_does_not_give_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ExportError, match=r"owner/x: config.json cannot be downloaded .*: check"):
        export_model("owner/x", tmp_path, "fp16")
    assert names(tmp_path) == []


@pytest.fixture
def fake_optimum(monkeypatch):
    """Writes what is looked at of an export; returns what it was told of weights each time."""
    told = []

    def write(_name, _family, target, options, *_):
        told.append(options[options.index("--weight-format") + 1 :])
        target.mkdir()
        for name in NEEDED_FILES:
            (target / name).write_text("{}")

    monkeypatch.setattr(export_module, "run_optimum", write)
    return told


@pytest.mark.parametrize("lost", ["tokenizer.json", "merges.txt"])
def test_a_folder_without_a_tokenizer_is_refused_before_anything_runs(
    checkpoint, tmp_path, fake_optimum, lost
):
    source = tmp_path / "lost"
    shutil.copytree(checkpoint, source)
    (source / "tokenizer.json").unlink()
    if lost == "merges.txt":
        (source / "vocab.json").touch()
    with pytest.raises(ExportError, match=r"'.*lost' has no tokenizer \(no tokenizer\.json.*: put"):
        export_model(str(source), tmp_path / "models", "fp16")
    assert fake_optimum == []
    assert names(tmp_path) == ["lost"]


def test_another_model_of_the_same_name_is_not_taken_for_it(tmp_path, fake_optimum):
    first, second = (make_source(tmp_path / run / "checkpoint-500") for run in ("a", "b"))
    made = export_model(first, tmp_path / "models", "fp16").folder
    for name in (second, "owner/checkpoint-500"):
        complaint = rf"{made} was made from {first}, not from {name}: choose another --output"
        with pytest.raises(ExportError, match=complaint):
            export_model(name, tmp_path / "models", "fp16")
    assert not export_model(first, tmp_path / "models", "fp16").is_new
    (made / ORIGIN_FILE).unlink()  # as of earlier versions
    assert not export_model(second, tmp_path / "models", "fp16").is_new


@pytest.mark.parametrize(
    "name", [*("nowhere", "a/b/c", "~nosuch/x", "../typo", "models/-x", "a/" + 97 * "b")]
)
def test_what_is_no_model_is_refused_at_once(tmp_path, name):
    with pytest.raises(ExportError, match="neither a folder here nor a Hub name"):
        export_model(name, tmp_path, "fp16")


def test_what_is_not_given_is_left_to_optimum(tmp_path, fake_optimum):
    source = make_source(tmp_path / "wide")
    export_model(source, tmp_path, "int4")
    made = export_model(source, tmp_path, "int4", Int4Options(sym=True))
    adjusted = ["--group-size-fallback", "adjust"]
    assert fake_optimum == [["int4", *adjusted], ["int4", "--sym", *adjusted]]
    given = Int4Options(group_size=-1, ratio=0.8, sym=True)
    other = export_model(source, tmp_path, "int4", given)
    assert (made.folder.name, other.folder.name) == (
        "wide-int4-sym",
        "wide-int4-group-size--1-ratio-0.8-sym",
    )
    assert fake_optimum[2] == ["int4", "--group-size", "-1", "--ratio", "0.8", "--sym"]
    assert not export_model(source, tmp_path, "int4", given).is_new


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--group-size", "64", "--weight-format", "int8"], "--group-size has no effect with"),
        (["--sym"], "--sym has no effect with --weight-format fp16: leave it out, or export as"),
        (["--weight-format", "int4", "--group-size", "-2"], "--group-size -2 must be"),
        (["--weight-format", "int4", "--ratio", "nan"], "--ratio nan must be"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(tmp_path, arguments, complaint):
    done = run("export", "--main", "owner/x", "--output", tmp_path / "models", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {complaint}")
    assert not (tmp_path / "models").exists()


# Notes its arguments, and runs the command with a version of transformers of its own.
UV = """
import os, subprocess, sys
from pathlib import Path
here = Path(__file__).parent
(here / "arguments").write_text("\\n".join(sys.argv[1:]))
(here / "transformers.py").write_text("__version__ = 'laid over'")
command = sys.argv[sys.argv.index("python") + 1 :]
sys.exit(subprocess.call([sys.executable, *command], env={**os.environ, "PYTHONPATH": str(here)}))
"""


def test_uv_lays_a_version_over_this_environment(tmp_path, monkeypatch):
    (tmp_path / "uv.py").write_text(UV)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import transformers, jinja2; print(transformers.__version__)"
    done = subprocess.run([*python_with("5.2.*"), "-c", code], capture_output=True, text=True)
    assert done.stdout == "laid over\n", done.stderr
    assert (tmp_path / "arguments").read_text().splitlines()[:5] == [
        "run",
        "--no-project",
        f"--python={sys.executable}",
        "--with=transformers==5.2.*",
        f"--with=numpy=={version('numpy')}",
    ]


def test_the_installed_version_needs_no_uv():
    assert python_with(None) == [sys.executable]


def test_without_uv_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"uv is not installed: .*pip install '\.\[export\]'"):
        python_with("5.0")


@pytest.mark.deep
def test_a_family_is_exported_with_the_version_that_it_wants(tmp_path, capfd):
    save_family("gemma3_text", tmp_path / "gemma3")
    with pytest.raises(ExportError, match=r"where it asks for another version of transformers"):
        export_model(str(tmp_path / "gemma3"), tmp_path, "int8")
    assert "Maximum required is 5.0" in capfd.readouterr().err
    exported = export_model(str(tmp_path / "gemma3"), tmp_path, "int8", transformers="5.0")
    assert exported.is_new


HEAD = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
SPECULATORS = {"architectures": ["Eagle3Speculator"], "transformer_layer_config": HEAD}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({**HEAD, "pard_token": 3}, "P-EAGLE drafts several tokens"),
        ({"architectures": ["PEagleDraftModel"]}, "P-EAGLE drafts several tokens"),
        ({"architectures": ["DFlashDraftModel"]}, "DFlash attends to later tokens"),
        ({"speculators_model_type": "mtp"}, "MTP heads belong to models with recurrent layers"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, "EAGLE-1 and EAGLE-2 read the last layer"),
        (HEAD, "reads hidden states of a main model, and so its export needs one: add main='NAME'"),
    ],
)
def test_heads_that_cannot_be_used_are_refused_with_the_reason(tmp_path, config, complaint):
    source = make_source(tmp_path / "head", **config)
    with pytest.raises(ExportError, match=complaint):
        export_model(source, tmp_path / "models", "fp16")


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({**SPECULATORS, "norm_twice": True}, "has the setting 'norm_twice', which is not known"),
        ({**SPECULATORS, "norm_before_fc": True, "fc_norm": True}, "both norm_before_fc and fc_"),
        ({**HEAD, "eagle_config": {}}, "has the setting 'eagle_config', which is not known"),
        ({**HEAD, "model_type": "mamba"}, "has layers of 'mamba', not of llama or qwen3"),
        (
            {**HEAD, "sliding_window": 64, "layer_types": ["sliding_attention"]},
            "attends to a window of 64 tokens, fewer than the 2048",
        ),
    ],
)
def test_settings_of_a_head_that_would_change_it_are_refused(config, complaint):
    with pytest.raises(ExportError, match=complaint):
        Eagle3Config.read(config, "head")
