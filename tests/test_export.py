"""Export through Optimum's own command, and what is said when it fails."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from ov_specdec import ExportError, ModelError, SpeculativePipeline
from ov_specdec.errors import TransformersVersionError
from ov_specdec.loading import export as export_module
from ov_specdec.loading import optimum
from ov_specdec.loading.export import NEEDED_FILES, export_model
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.loading.origin import ORIGIN_FILE
from ov_specdec.text.tokenizer import load_tokenizer
from tests.tiny import save_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A Llama of hidden size 48 and an MLP of 96."""
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny-llama"
    save_checkpoint("llama", folder)
    return folder


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
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").touch()
    commands = []
    monkeypatch.setattr(optimum, "run_child", lambda command, *_: commands.append(command))
    with pytest.raises(ExportError, match="is not usable"):
        export_model(str(tmp_path), tmp_path / "output", "int8")
    assert commands[0][commands[0].index("--task") + 1] == f"{task}-with-past"


def test_marians_tokenizer_is_refused(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "source.spm").touch()
    with pytest.raises(ExportError, match="Marian's tokenizer"):
        export_model(str(tmp_path), tmp_path / "output", "int8")
    with pytest.raises(ModelError, match="Marian's tokenizer"):
        load_tokenizer(tmp_path)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_draft_of_the_embedded_pair_comes_with_its_checkpoint():
    assert (embedded_folder("draft") / "checkpoint" / "config.json").is_file()


GATED = """huggingface_hub.errors.GatedRepoError: 401 Client Error.
Cannot access gated repo for url https://huggingface.co/meta-llama/x/resolve/main/config.json.
OSError: You are trying to access a gated repo."""
OFFLINE = """httpx.ConnectError: [Errno -2] Name or service not known
OSError: We couldn't connect to 'https://huggingface.co' to load the files"""
MISSING = "OSError: owner/x is not a local folder and is not a valid model identifier"
FULL = "OSError: [Errno 28] No space left on device"
REMOTE = "ValueError: Please pass the argument `trust_remote_code=True` to allow custom code"
GROUPS = """nncf.errors.InvalidGroupSizeError: Failed to apply group-wise quantization with group \
size value 100.
Failed nodes:
\t"__module.model.layers.0.mlp.down_proj/aten::linear/MatMul" (channel size: 192)"""
FAMILY = """ValueError: Trying to export a olmo3 model, that is a custom or unsupported \
architecture, but no custom export configuration was passed as `custom_export_configs`."""
UNKNOWN = """ValueError: The checkpoint you are trying to load has model type `gemma9` but \
Transformers does not recognize this architecture."""
OTHER = "Traceback (most recent call last):\n  File x\nKeyError: 'mystery'\n"


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (GATED, "gated: accept its licence on https://huggingface.co/owner/x, then log in"),
        (OFFLINE, "the Hub cannot be reached: check the network, or give a local folder"),
        (MISSING, "no such model on the Hub, or it is private: check the name"),
        (FULL, r"the disk is full: free some space \(.* GB are left\)"),
        (REMOTE, "add --trust-remote-code"),
        (GROUPS, "in groups of 100 does not fit a layer of width 192: choose a --group-size"),
        (
            FAMILY,
            "Optimum has no export for the family 'olmo3': use an IR that was exported elsewhere",
        ),
        (UNKNOWN, "this version of transformers does not know the family 'gemma9': add"),
        (OTHER, r"optimum-cli failed \(KeyError: 'mystery'\)"),
    ],
)
def test_a_failure_is_explained_and_leaves_nothing_behind(monkeypatch, tmp_path, output, complaint):
    def fail(command, log, *_):
        (Path(command[-1])).mkdir()
        (Path(command[-1]) / "openvino_model.xml").write_text("half")
        log.write(output)
        return 1

    monkeypatch.setattr(optimum, "run_child", fail)
    with pytest.raises(ExportError, match=f"owner/x: .*{complaint}"):
        export_model("owner/x", tmp_path, "fp16")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("bound", "wanted", "said"),
    [("Maximum", "5.0", "5.0 at most"), ("Minimum", "5.10", "5.10 at least")],
)
def test_the_version_of_transformers_that_optimum_wants_is_found(
    monkeypatch, tmp_path, bound, wanted, said
):
    def refuse(command, log, *_):
        log.write("ValueError: The current version of Transformers does not allow for the export ")
        log.write(f"of the model. {bound} required is {wanted}, got: 5.5.4\n")
        return 1

    monkeypatch.setattr(optimum, "run_child", refuse)
    with pytest.raises(
        TransformersVersionError, match=f"transformers {said}, and this is 5.5.4"
    ) as e:
        export_model("owner/x", tmp_path, "fp16")
    assert e.value.wanted == wanted
    assert list(tmp_path.iterdir()) == []


def test_an_export_runs_in_the_environment_that_was_asked_for(monkeypatch, tmp_path):
    used = []
    monkeypatch.setattr(export_module, "find_python", lambda version, _: f"python-{version}")
    monkeypatch.setattr(optimum, "run_child", lambda *given: used.append(given[-1]) or -9)
    for version in (None, "5.0"):
        with pytest.raises(ExportError, match="killed"):
            export_model("owner/x", tmp_path, "fp16", transformers=version)
    assert used == [sys.executable, "python-5.0"]


def test_an_export_that_was_killed_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(optimum, "run_child", lambda *_: -9)
    with pytest.raises(ExportError, match="killed, probably because memory ran out"):
        export_model("owner/x", tmp_path, "fp16")


def test_an_interrupted_export_leaves_nothing_behind(monkeypatch, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(optimum, "run_child", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export_model("owner/x", tmp_path, "fp16")
    assert list(tmp_path.iterdir()) == []


def test_an_export_without_a_fast_tokenizer_is_not_taken_for_finished(monkeypatch, tmp_path):
    def write_some(command, *_):
        (Path(command[-1])).mkdir()
        for name in ("openvino_model.xml", "openvino_model.bin", "config.json"):
            (Path(command[-1]) / name).touch()
        return 0

    monkeypatch.setattr(optimum, "run_child", write_some)
    with pytest.raises(ExportError, match=r"no tokenizer.json, so it is not usable"):
        export_model("owner/x", tmp_path, "fp16")
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_folder_of_another_tool_is_not_taken_for_finished(tmp_path):
    (tmp_path / "x-fp16").mkdir()
    (tmp_path / "x-fp16" / "openvino_model.xml").touch()
    with pytest.raises(ExportError, match=r"has no openvino_model.bin.*: remove .*x-fp16"):
        export_model("owner/x", tmp_path, "fp16")


@pytest.fixture
def fake_optimum(monkeypatch):
    """Writes what is looked at of an export; returns the commands that it got."""
    commands = []

    def write(command, *_):
        commands.append(command)
        Path(command[-1]).mkdir()
        for name in NEEDED_FILES:
            (Path(command[-1]) / name).write_text("{}")
        return 0

    monkeypatch.setattr(optimum, "run_child", write)
    return commands


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


@pytest.mark.parametrize(
    "files",
    [
        ["tokenizer.json"],
        ["tokenizer.model"],
        ["tokenizer.model.v3"],
        ["vocab.json", "merges.txt"],
        ["vocab.txt"],
        ["spiece.model"],
        ["sentencepiece.bpe.model"],
        ["spm.model"],
        ["tekken.json"],
        ["qwen.tiktoken"],
        ["tokenization_own.py"],
    ],
)
def test_any_kind_of_tokenizer_is_one(tmp_path, fake_optimum, files):
    source = tmp_path / "model"
    source.mkdir()
    for file in ("config.json", *files):
        (source / file).touch()
    assert export_model(str(source), tmp_path, "fp16").is_new


@pytest.fixture
def hub_cache(monkeypatch, tmp_path):
    """The snapshot of owner/x in a Hub cache of its own."""
    repository = tmp_path / "hub" / "models--owner--x"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return snapshot


def test_a_model_of_the_hub_without_a_tokenizer_is_refused(hub_cache, tmp_path, fake_optimum):
    with pytest.raises(ExportError, match=r"'owner/x' has no tokenizer"):
        export_model("owner/x", tmp_path / "models", "fp16")
    assert names(tmp_path / "models") == []
    (hub_cache / "tokenizer.json").touch()
    assert export_model("owner/x", tmp_path / "models", "fp16").is_new


def test_a_model_that_is_not_in_the_cache_after_its_export_is_refused(
    monkeypatch, tmp_path, fake_optimum
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(ExportError, match=r"'owner/x' is not in the Hub's cache"):
        export_model("owner/x", tmp_path / "models", "fp16")


def test_another_model_of_the_same_name_is_not_taken_for_it(tmp_path, fake_optimum):
    folders = [tmp_path / run / "checkpoint-500" for run in ("first", "second")]
    for folder in folders:
        folder.mkdir(parents=True)
        for file in ("config.json", "tokenizer.json"):
            (folder / file).touch()
    made = export_model(str(folders[0]), tmp_path / "models", "fp16").folder
    for name in (str(folders[1]), "owner/checkpoint-500"):
        complaint = rf"{made} was made from {folders[0]}, not from {name}: choose another --output"
        with pytest.raises(ExportError, match=complaint):
            export_model(name, tmp_path / "models", "fp16")
    assert not export_model(str(folders[0]), tmp_path / "models", "fp16").is_new
    (made / ORIGIN_FILE).unlink()  # as of earlier versions
    assert not export_model(str(folders[1]), tmp_path / "models", "fp16").is_new


@pytest.mark.parametrize(
    "name",
    [
        *("nowhere", "a/b/c", "/nowhere/at/all", "~nosuch/x"),
        *("./typo", "../typo", "models/-x", "a/b--c", "a/b.git", "a/" + 97 * "b"),
    ],
)
def test_what_is_no_model_is_refused_at_once(tmp_path, name):
    with pytest.raises(ExportError, match="neither a folder here nor a Hub name"):
        export_model(name, tmp_path, "fp16")


def test_an_ir_is_said_to_be_exported_already(tiny_pair, tmp_path):
    with pytest.raises(ExportError, match=r"is already exported.*openvino_model.xml: use it"):
        export_model(str(tiny_pair[0]), tmp_path, "fp16")


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ExportError, match=r"holds no config.json"):
        export_model(str(tmp_path / "empty"), tmp_path / "models", "fp16")


def test_without_optimum_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(optimum.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"in a checkout: pip install '\.\[export\]'"):
        export_model("owner/x", tmp_path, "fp16")


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=r"--output '.*file/models' cannot be written"):
        export_model("owner/x", tmp_path / "file" / "models", "fp16")
