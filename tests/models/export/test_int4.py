"""int4: a group size that fits the model, and Optimum's options for it."""

import json

import pytest
from click.testing import CliRunner

from ov_specdec.cli.export import export as export_command
from ov_specdec.models import export
from ov_specdec.models.export import NEEDED_FILES, export_model
from ov_specdec.models.optimum import Int4Options


@pytest.fixture
def commands(monkeypatch):
    """The commands that an Optimum gets which writes what is looked at of an export."""
    commands = []

    def write(_name, _family, target, options, _transformers):
        commands.append(options)
        target.mkdir()
        for name in NEEDED_FILES:
            (target / name).write_text("{}")

    monkeypatch.setattr(export, "run_optimum", write)
    return commands


def options_in(command):
    """What Optimum was told about the weights."""
    return command[command.index("--weight-format") + 1 :]


def make_source(folder, **config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").touch()
    return str(folder)


def run(*arguments):
    return CliRunner().invoke(export_command, list(map(str, arguments)))


def test_what_is_not_given_is_left_to_optimum(tmp_path, commands):
    source = make_source(tmp_path / "wide", hidden_size=256, intermediate_size=640)
    export_model(source, tmp_path, "int4")
    made = export_model(source, tmp_path, "int4", Int4Options(sym=True))
    adjusted = ["--group-size-fallback", "adjust"]
    found = [options_in(command) for command in commands]
    assert found == [["int4", *adjusted], ["int4", "--sym", *adjusted]]
    given = Int4Options(group_size=-1, ratio=0.8, sym=True)
    other = export_model(source, tmp_path, "int4", given)
    assert (made.folder.name, other.folder.name) == (
        "wide-int4-sym",
        "wide-int4-group-size--1-ratio-0.8-sym",
    )
    assert options_in(commands[2]) == ["int4", "--group-size", "-1", "--ratio", "0.8", "--sym"]
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
    done = run("--main", "owner/x", "--output", tmp_path / "models", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {complaint}")
    assert not (tmp_path / "models").exists()
