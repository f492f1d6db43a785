"""int4: a group size that fits the model, and Optimum's options for it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ov_specdec.cli.export import export as export_command
from ov_specdec.models import export
from ov_specdec.models.export import NEEDED_FILES, export_model
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.optimum import Int4Options
from ov_specdec.models.source import read_ir
from tests.benchmarks.expansion.ir_weights import constants_by_name
from tests.support.tiny import save_tokenizer

WIDTHS = {"hidden_size": 96, "intermediate_size": 192}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A Llama whose widths 32 divides, but 64 and 128 do not."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("checkpoints") / "narrow"
    torch.manual_seed(1)
    config = LlamaConfig(
        **WIDTHS,
        vocab_size=320,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


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


@pytest.mark.deep
def test_groups_of_narrow_layers_are_adjusted(checkpoint, tmp_path):
    done = run(
        *("--main", checkpoint, "--output", tmp_path, "--weight-format", "int4"),
        *("--ratio", "0.5", "--sym"),
    )
    assert done.exit_code == 0, done.stderr
    folder = tmp_path / "narrow-int4-ratio-0.5-sym"
    assert done.stdout == f"{folder}\n"
    assert list(tmp_path.iterdir()) == [folder]
    weights = {
        name: op
        for name, op in constants_by_name(read_ir(ModelFolder.read(folder))).items()
        if re.fullmatch(r"self\.model\.layers\..*\.weight", name)
    }
    assert len(weights) == 7
    kinds = {op.get_element_type().get_type_name() for op in weights.values()}
    assert kinds == {"i4", "u8"}
    for op in weights.values():
        if op.get_element_type().get_type_name() == "i4":
            assert op.shape[-1] in (32, 64)


def test_what_fits_is_left_to_optimum(tmp_path, commands):
    source = make_source(tmp_path / "wide", hidden_size=256, intermediate_size=640)
    export_model(source, tmp_path, "int4")
    export_model(source, tmp_path, "int4", Int4Options(sym=True))
    assert [options_in(command) for command in commands] == [["int4"], ["int4", "--sym"]]


def test_a_group_size_that_is_given_is_passed_without_a_look_at_the_widths(tmp_path, commands):
    source = make_source(tmp_path / "odd", hidden_size=100)
    given = Int4Options(group_size=-1, ratio=0.8, sym=True)
    made = export_model(source, tmp_path, "int4", given)
    assert made.folder.name == "odd-int4-group-size--1-ratio-0.8-sym"
    assert options_in(commands[0]) == ["int4", "--group-size", "-1", "--ratio", "0.8", "--sym"]


def test_other_settings_make_another_folder(tmp_path, commands):
    source = make_source(tmp_path / "x", hidden_size=256)
    settings = [Int4Options(), Int4Options(group_size=64), Int4Options(group_size=32)]
    folders = {export_model(source, tmp_path, "int4", int4).folder for int4 in settings}
    assert len(folders) == len(commands) == 3
    assert not export_model(source, tmp_path, "int4", settings[1]).is_new


@pytest.mark.parametrize(
    "config",
    [
        {"n_embd": 48, "n_inner": None},
        {"hidden_size": 128, "intermediate_size": [256, 96]},
        {"text_config": {"hidden_size": 64}, "hidden_size": 128},
    ],
)
def test_where_a_width_does_not_fit_optimum_adjusts_the_groups(tmp_path, commands, config):
    export_model(make_source(tmp_path / "odd", **config), tmp_path, "int4")
    adjusted = ["--group-size", "128", "--group-size-fallback", "adjust"]
    assert options_in(commands[0]) == ["int4", *adjusted]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--group-size", "64", "--weight-format", "int8"], "--group-size has no effect with"),
        (["--ratio", "0.5"], "--ratio has no effect with --weight-format fp16"),
        (["--sym"], "--sym has no effect with --weight-format fp16: leave it out, or export as"),
        (["--weight-format", "int4", "--group-size", "0"], "--group-size 0 must be at least 1"),
        (["--weight-format", "int4", "--group-size", "-2"], "--group-size -2 must be"),
        (["--weight-format", "int4", "--ratio", "0"], "--ratio 0.0 must be a number above 0"),
        (["--weight-format", "int4", "--ratio", "1.5"], "--ratio 1.5 must be"),
        (["--weight-format", "int4", "--ratio", "nan"], "--ratio nan must be"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(tmp_path, arguments, complaint):
    done = run("--main", "owner/x", "--output", tmp_path / "models", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {complaint}")
    assert not (tmp_path / "models").exists()


def test_the_widths_of_a_model_of_the_hub_are_read_there(tmp_path, commands, monkeypatch):
    source = Path(make_source(tmp_path / "snapshot", hidden_size=576, intermediate_size=1536))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file: str(source / file))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: str(source))
    export_model("owner/x", tmp_path / "models", "int4")
    assert options_in(commands[0])[:2] == ["int4", "--group-size"]
