"""Export through Optimum's own command, and what is said when it fails."""

import subprocess
from pathlib import Path

import pytest

from ov_specdec import ExportError, SpeculativePipeline
from ov_specdec.loading import export as export_module
from ov_specdec.loading.export import export_model
from ov_specdec.loading.locate import embedded_folder
from tests.tiny import save_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny-llama"
    save_checkpoint("llama", folder)
    return folder


def test_a_checkpoint_is_exported_for_real_and_then_left_alone(checkpoint, tmp_path):
    first = export_model(str(checkpoint), tmp_path, "int8")
    assert first.is_new
    assert first.folder == tmp_path / "tiny-llama-int8"
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-llama-int8"]
    pipeline = SpeculativePipeline(first.folder, first.folder)
    result = pipeline.generate("def", max_new_tokens=8, ignore_eos=True)
    assert len(result.token_ids) == 8

    written = (first.folder / "openvino_model.bin").stat().st_mtime_ns
    second = export_model(str(checkpoint), tmp_path, "int8")
    assert not second.is_new
    assert (second.folder / "openvino_model.bin").stat().st_mtime_ns == written


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
OTHER = "Traceback (most recent call last):\n  File x\nKeyError: 'mystery'\n"


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (GATED, "gated: accept its licence on https://huggingface.co/owner/x, then log in"),
        (OFFLINE, "the Hub cannot be reached: check the network, or give a local folder"),
        (MISSING, "no such model on the Hub, or it is private: check the name"),
        (FULL, r"the disk is full: free some space \(.* GB are left\)"),
        (REMOTE, "add --trust-remote-code"),
        (OTHER, r"optimum-cli failed \(KeyError: 'mystery'\)"),
    ],
)
def test_a_failure_is_explained_and_leaves_nothing_behind(monkeypatch, tmp_path, output, complaint):
    def fail(command, stdout, **_):
        (Path(command[-1])).mkdir()
        (Path(command[-1]) / "openvino_model.xml").write_text("half")
        stdout.write(output)
        return subprocess.CompletedProcess(command, returncode=1)

    monkeypatch.setattr(export_module.subprocess, "run", fail)
    with pytest.raises(ExportError, match=f"owner/x: .*{complaint}"):
        export_model("owner/x", tmp_path, "fp16")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_was_killed_says_so(monkeypatch, tmp_path):
    def kill(command, **_):
        return subprocess.CompletedProcess(command, returncode=-9)

    monkeypatch.setattr(export_module.subprocess, "run", kill)
    with pytest.raises(ExportError, match="killed, most likely because memory ran out"):
        export_model("owner/x", tmp_path, "fp16")


def test_an_interrupted_export_leaves_nothing_behind(monkeypatch, tmp_path):
    def interrupt(command, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(export_module.subprocess, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export_model("owner/x", tmp_path, "fp16")
    assert list(tmp_path.iterdir()) == []


def test_an_export_without_a_fast_tokenizer_is_not_taken_for_finished(monkeypatch, tmp_path):
    def write_some(command, **_):
        (Path(command[-1])).mkdir()
        for name in ("openvino_model.xml", "openvino_model.bin", "config.json"):
            (Path(command[-1]) / name).touch()
        return subprocess.CompletedProcess(command, returncode=0)

    monkeypatch.setattr(export_module.subprocess, "run", write_some)
    with pytest.raises(ExportError, match=r"no tokenizer.json, so it is not usable"):
        export_model("owner/x", tmp_path, "fp16")
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_folder_of_another_tool_is_not_taken_for_finished(tmp_path):
    (tmp_path / "x-fp16").mkdir()
    (tmp_path / "x-fp16" / "openvino_model.xml").touch()
    with pytest.raises(ExportError, match=r"has no openvino_model.bin.*: remove .*x-fp16"):
        export_model("owner/x", tmp_path, "fp16")


@pytest.mark.parametrize("name", ["nowhere", "a/b/c", "/nowhere/at/all"])
def test_what_is_no_model_is_refused_at_once(tmp_path, name):
    with pytest.raises(ExportError, match="neither a folder nor a Hub name"):
        export_model(name, tmp_path, "fp16")


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ExportError, match=r"holds no config.json"):
        export_model(str(tmp_path / "empty"), tmp_path / "models", "fp16")


def test_without_optimum_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(export_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"pip install 'ov-specdec\[export\]'"):
        export_model("owner/x", tmp_path, "fp16")


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=r"--output '.*file/models' cannot be written"):
        export_model("owner/x", tmp_path / "file" / "models", "fp16")
