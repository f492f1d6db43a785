"""int4: a group size that fits the model, and Optimum's options for it."""

import json
import re
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from huggingface_hub.errors import LocalEntryNotFoundError

from ov_specdec import ExportError
from ov_specdec.cli.export import export as export_command
from ov_specdec.loading import optimum
from ov_specdec.loading.export import NEEDED_FILES, export_model
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.int4 import Int4Options, fitting_group_size, layer_widths
from ov_specdec.loading.source import read_ir
from tests.benchmarks.expansion.ir_weights import constants_by_name
from tests.tiny import save_tokenizer

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

    def write(command, *_):
        commands.append(command)
        Path(command[-1]).mkdir()
        for name in NEEDED_FILES:
            (Path(command[-1]) / name).write_text("{}")
        return 0

    monkeypatch.setattr(optimum, "run_child", write)
    return commands


def options_in(command):
    """What Optimum was told about the weights."""
    return command[command.index("--weight-format") + 1 : -1]


def make_source(folder, **config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").touch()
    return str(folder)


def run(*arguments):
    return CliRunner().invoke(export_command, list(map(str, arguments)))


@pytest.mark.deep
def test_a_group_size_that_fits_is_chosen_and_said(checkpoint, tmp_path):
    done = run(
        *("--main", checkpoint, "--output", tmp_path, "--weight-format", "int4"),
        *("--ratio", "0.5", "--sym"),
    )
    assert done.exit_code == 0, done.stderr
    assert done.stderr == (
        f"{checkpoint}: int4 weights in groups of 32, since 128 does not divide its layers' width "
        "of 96 (--group-size chooses another size)\n"
    )
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
            assert op.shape[-1] == 32


def test_what_fits_is_left_to_optimum(tmp_path, commands):
    source = make_source(tmp_path / "wide", hidden_size=256, intermediate_size=640)
    notes = []
    export_model(source, tmp_path, "int4", on_note=notes.append)
    export_model(source, tmp_path, "int4", Int4Options(sym=True), on_note=notes.append)
    assert [options_in(command) for command in commands] == [["int4"], ["int4", "--sym"]]
    assert notes == []


def test_a_model_that_says_nothing_of_its_widths_is_left_to_optimum(tmp_path, commands):
    export_model(make_source(tmp_path / "unknown", model_type="own"), tmp_path, "int4")
    assert options_in(commands[0]) == ["int4"]


def test_a_group_size_that_is_given_is_passed_without_a_look_at_the_widths(tmp_path, commands):
    source = make_source(tmp_path / "odd", hidden_size=100)
    given = Int4Options(group_size=-1, ratio=0.8, sym=True)
    made = export_model(source, tmp_path, "int4", given, on_note=pytest.fail)
    assert made.folder.name == "odd-int4-group-size--1-ratio-0.8-sym"
    assert options_in(commands[0]) == ["int4", "--group-size", "-1", "--ratio", "0.8", "--sym"]


def test_other_settings_make_another_folder(tmp_path, commands):
    source = make_source(tmp_path / "x", hidden_size=256)
    settings = [Int4Options(), Int4Options(group_size=64), Int4Options(group_size=32)]
    folders = {export_model(source, tmp_path, "int4", int4).folder for int4 in settings}
    assert len(folders) == len(commands) == 3
    assert not export_model(source, tmp_path, "int4", settings[1]).is_new


def test_a_model_that_no_group_size_fits_is_refused_with_what_can_be_done(tmp_path, commands):
    source = make_source(tmp_path / "odd", hidden_size=48, intermediate_size=96)
    with pytest.raises(ExportError, match=r"widths 48, 96: choose a --group-size .* or -1 .*int8"):
        export_model(source, tmp_path / "models", "int4")
    assert commands == []
    assert list((tmp_path / "models").iterdir()) == []


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
    assert options_in(commands[0]) == ["int4", "--group-size", "64"]


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (LocalEntryNotFoundError("no network"), "the Hub cannot be reached"),
        (httpx.ProxyError("403 Forbidden"), "the Hub cannot be reached"),
        (
            RuntimeError("the client has been closed"),
            "config.json cannot be read .*closed.*: check",
        ),
    ],
)
def test_a_hub_that_does_not_answer_is_named(tmp_path, monkeypatch, commands, error, complaint):
    def fail(name, file):
        raise error

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    with pytest.raises(ExportError, match=f"owner/x: {complaint}"):
        export_model("owner/x", tmp_path / "models", "int4")
    assert commands == []


@pytest.mark.parametrize("text", ["no json", "[1]"])
def test_a_broken_config_is_named(tmp_path, commands, text):
    source = make_source(tmp_path / "broken")
    (tmp_path / "broken" / "config.json").write_text(text)
    with pytest.raises(ExportError, match=r"broken: config\.json "):
        export_model(source, tmp_path / "models", "int4")
    assert commands == []


def test_widths_are_found_by_the_names_of_many_families():
    assert layer_widths({"n_embd": 48, "n_inner": None}) == [48]
    assert layer_widths({"hidden_size": 64, "num_attention_heads": 3, "head_dim": 32}) == [64, 96]
    assert layer_widths({"hidden_size": 64, "intermediate_size": [96, 128]}) == [64, 96, 128]
    assert layer_widths({"text_config": {"hidden_size": 64}, "hidden_size": 1}) == [64]
    assert layer_widths({"hidden_size": "64", "ffn_dim": True, "d_model": 0}) == []


@pytest.mark.parametrize(
    ("widths", "size"),
    [([576, 1536], 64), ([256, 640], 128), ([96], 32), ([128, 48], None), ([], 128)],
)
def test_the_largest_group_size_that_divides_all_widths(widths, size):
    assert fitting_group_size(widths) == size
