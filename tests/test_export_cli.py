"""`ov-specdec export`: which models it exports, in which format; Optimum is not run."""

import shutil
import sys
from pathlib import Path

import pytest

from ov_specdec.cli import export as command
from ov_specdec.errors import TransformersVersionError
from ov_specdec.files import as_argument
from ov_specdec.loading.export import Exported
from tests.command_line import run
from tests.tiny import SAMPLE, save_tokenizer


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


def test_without_a_model_it_says_how_to_name_one(exports):
    done = run("export")
    assert (done.returncode, exports) == (2, [])
    assert done.stderr.startswith(
        "error: no model is named: give --main NAME, --draft NAME or both"
    )


def test_a_draft_of_its_own_has_the_format_of_the_main_model(exports):
    done = run("export", "--main", "owner/x", "--draft", "owner/y", "--weight-format", "int8")
    assert done.returncode == 0, done.stderr
    assert exports == [("owner/x", "int8", []), ("owner/y", "int8", [])]


@pytest.fixture
def versions(monkeypatch, tiny_pair):
    """The versions of transformers that exports are tried with; Optimum takes 5.0 only."""
    tried = []

    def refuse(name, *_, transformers, **__):
        tried.append(transformers)
        if transformers != "5.0":
            raise TransformersVersionError(name, "Maximum", "5.0", transformers or "5.5.4")
        return Exported(Path(tiny_pair[0]), is_new=True)

    monkeypatch.setattr(command, "export_model", refuse)
    return tried


def test_without_a_terminal_the_command_that_will_do_is_printed(versions, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ov-specdec", "export", "--main", "my models/x", "--sym"])
    done = run("export", "--main", "my models/x", "--sym")
    assert done.returncode == 2
    wanted = "run ov-specdec export --main 'my models/x' --sym --transformers 5.0\n"
    assert done.stderr.endswith(wanted)
    assert versions == [None]


@pytest.mark.parametrize(("answer", "tried"), [(True, [None, "5.0"]), (False, [None])])
def test_on_a_terminal_the_user_is_asked(versions, monkeypatch, answer, tried):
    questions = []
    monkeypatch.setattr(command, "on_terminal", lambda: True)
    monkeypatch.setattr(
        command.click, "confirm", lambda asked, **_: questions.append(asked) or answer
    )
    done = run("export", "--main", "owner/x")
    assert questions == ["Make an environment with transformers 5.0 in the cache folder?"]
    assert (done.returncode, versions) == (0 if tried[1:] else 2, tried)


def test_a_version_that_is_given_is_not_replaced_by_another(versions):
    done = run("export", "--main", "owner/x", "--transformers", "5.2")
    assert "transformers 5.0 at most, and this is 5.2: --transformers 5.0 makes an" in done.stderr
    assert (done.returncode, versions) == (2, ["5.2"])


def test_two_whispers_are_tried_on_a_recording(monkeypatch, whisper, tmp_path):
    folders = {name: tmp_path / f"my {name}" for name in ("main", "draft")}
    for name, folder in folders.items():
        shutil.copytree(getattr(whisper, name), folder)
    monkeypatch.setattr(
        command, "export_model", lambda name, *_, **__: Exported(folders[name], is_new=True)
    )
    done = run("export", "--main", "main", "--draft", "draft")
    assert done.returncode == 0, done.stderr
    main, draft = map(as_argument, folders.values())
    assert f"try: ov-specdec transcribe FILE --main {main} --draft {draft}\n" in done.stdout


@pytest.fixture
def checkpoints(tmp_path):
    """Folders of tokenizers, as checkpoints have them, that are not the same."""
    samples = {"main": SAMPLE, "draft": "something else entirely, with other merges"}
    for name, sample in samples.items():
        save_tokenizer(tmp_path / name, sample=sample)
    return [tmp_path / name for name in samples]


@pytest.mark.parametrize("arguments", [(), ("--weight-format", "int8")])
def test_without_names_nothing_is_asked_of_the_hub(exports, arguments):
    done = run("export", *arguments)
    assert (done.returncode, exports) == (2, [])
    assert "--main NAME" in done.stderr


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


def test_the_command_to_try_has_the_pairing_that_two_models_need(monkeypatch, tiny_pair, tmp_path):
    other = shutil.copytree(tiny_pair[1], tmp_path / "other")
    save_tokenizer(other, sample="something else entirely, with other merges")
    folders = {"owner/x": Path(tiny_pair[0]), "owner/y": other}
    monkeypatch.setattr(
        command, "export_model", lambda name, *_, **__: Exported(folders[name], is_new=True)
    )
    done = run("export", "--main", "owner/x", "--draft", "owner/y", "--pairing", "retokenize")
    assert done.stdout.endswith(f"--draft {other} --pairing retokenize\n")


def test_int4_options_without_int4_are_refused_as_before(exports):
    run("export", "--main", "owner/x", "--weight-format", "int8", "--sym")
    assert exports == [("owner/x", "int8", ["--sym"])]  # `export_model` refuses them
