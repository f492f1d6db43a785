"""`ov-specdec export`: which models it exports, in which format; Optimum is not run."""

from pathlib import Path

import pytest

from ov_specdec.cli import export as command
from ov_specdec.models.export import Exported
from tests.support.command_line import run
from tests.support.tiny import SAMPLE, save_tokenizer


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Nobody asks the Hub for the tokenizer of owner/x."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def exports(monkeypatch, tiny_pair):
    """The exports that are asked for: name, format and int4 options. All give the tiny model."""
    asked = []

    def record(name, output, weight_format, int4, **_):
        asked.append((name, weight_format, None if int4 is None else int4.arguments()))
        return Exported(Path(tiny_pair[0]), is_new=True)

    monkeypatch.setattr(command, "export_model", record)
    return asked


def test_a_draft_from_the_main_model_is_a_second_export_of_it(exports, tiny_pair):
    options = ("--weight-format", "int8", "--draft-from-main", "int4", "--group-size", 64)
    done = run("export", "--main", "owner/x", *options)
    assert done.returncode == 0, done.stderr
    # The int4 options are those of the draft: the main model has no use for them.
    assert exports == [("owner/x", "int8", None), ("owner/x", "int4", ["--group-size", "64"])]
    assert f"--main {tiny_pair[0]} --draft {tiny_pair[0]}" in done.stdout
    exports.clear()
    run("export", "--main", "owner/x", "--draft", "owner/y", "--weight-format", "int8")
    assert exports == [("owner/x", "int8", []), ("owner/y", "int8", [])]


@pytest.fixture
def checkpoints(tmp_path):
    """Folders of tokenizers, as checkpoints have them, that are not the same."""
    samples = {"main": SAMPLE, "draft": "something else entirely, with other merges"}
    for name, sample in samples.items():
        save_tokenizer(tmp_path / name, sample=sample)
        (tmp_path / name / "config.json").write_text("{}")
    return [tmp_path / name for name in samples]


def test_tokenizers_that_differ_are_found_before_the_first_export(exports, checkpoints):
    main, draft = checkpoints
    done = run("export", "--main", main, "--draft", draft)
    assert (done.returncode, exports) == (2, [])
    assert "have different tokenizers (" in done.stderr
    remedy = "so nothing was exported: name a draft of the same family, or add --pairing auto\n"
    assert remedy in done.stderr
    assert run("export", "--main", main, "--draft", main).returncode == 0
    done = run("export", "--main", main, "--draft", draft, "--pairing", "auto")
    assert done.returncode == 0, done.stderr
    assert len(exports) == 4


@pytest.mark.parametrize("place", ["folder", "hub"])
def test_a_heads_main_model_may_be_exported_already(
    exports, place, tiny_pair, tmp_path, monkeypatch
):
    main = str(tiny_pair[0])
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    if place == "hub":
        monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file: Path(main, file))
        monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: main)
    done = run("export", "--main", "owner/x" if place == "hub" else main, "--draft", tmp_path)
    assert done.returncode == 0, done.stderr
    assert exports == [(str(tmp_path), "fp16", [])]
    assert f"try: ov-specdec generate PROMPT --main {main} --draft" in done.stdout
