"""Every bad input of the command line: one line on stderr, exit code 2."""

import json
import re
import shutil
import socket
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.tiny import save_stateless_ir, save_tokenizer

ROOT = Path(__file__).parents[2]

BAD_INPUT = {
    "empty prompt": (["generate", ""], "the prompt is empty"),
    "no prompt": (["generate"], "stdin is empty: give at least one token of text, or a PROMPT"),
    "two prompts": (["generate", "x", "--prompt-file", "y"], "a PROMPT or --prompt-file 'y', not"),
    "missing prompt file": (
        ["generate", "--prompt-file", "/nowhere"],
        "'/nowhere' cannot be read: No such file",
    ),
    "prompt not UTF-8": (["generate", "a\udcff"], "the prompt is not valid text at character 1"),
    "no folder": (["generate", "x", "--main", "nowhere", "--drafter", "none"], "'nowhere' is not"),
    "no IR": (["generate", "x", "--main", ".", "--drafter", "none"], "holds no model: give the"),
    "no draft": (
        ["generate", "x", "--main", ".", "--drafter", "model"],
        "no draft model for --main .: give --draft, or choose --drafter suffix or",
    ),
    "needless draft": (
        ["generate", "x", "--main", ".", "--draft", "folder", "--drafter", "none"],
        "--draft folder has no effect with --drafter none",
    ),
    "unknown device": (["generate", "x", "--device", "TPU"], "device 'TPU' is not available"),
    "unknown draft device": (["generate", "x", "--draft-device", "TPU"], "device 'TPU' is not"),
    "negative budget": (["generate", "x", "--max-new-tokens", "-1"], "--max-new-tokens -1 must"),
    "negative length": (
        ["generate", "x", "--num-assistant-tokens", "-1"],
        "--num-assistant-tokens -1 must",
    ),
    "no number": (
        ["generate", "x", "--num-assistant-tokens", "few"],
        "'few' must be auto or a whole number",
    ),
    "needless length": (
        ["generate", "x", "--num-assistant-tokens", "4", "--drafter", "none"],
        "--num-assistant-tokens 4 needs a drafter, and --drafter none has none",
    ),
    "needless n-gram": (
        ["generate", "x", "--max-matching-ngram-size", "4"],
        "--max-matching-ngram-size 4 needs --drafter prompt-lookup, not",
    ),
    "system message without a template": (
        ["generate", "x", "--system", "Be brief."],
        "the model has no chat template to put messages into: give the prompt as one text",
    ),
    "needless template arguments": (
        ["generate", "x", "--chat-template-kwargs", '{"a": 1}'],
        "--chat-template-kwargs has no effect on a prompt that is not put into a chat template",
    ),
    "no JSON": (["generate", "x", "--chat-template-kwargs", "{"], "'{' is not valid JSON"),
    "no object": (
        ["generate", "x", "--chat-template-kwargs", "3"],
        "s 3 must be a mapping of names",
    ),
    "no reference text": (
        ["generate", "x", "--drafter", "suffix", "--reference-texts", "nowhere"],
        "'nowhere' cannot be read as text",
    ),
    "no model to make a draft of": (
        ["export", "--draft-from-main", "int4"],
        "--draft-from-main int4 needs the model: give --main NAME",
    ),
    "two drafts": (
        ["export", "--main", "x", "--draft", "y", "--draft-from-main", "int4"],
        "--draft 'y' contradicts --draft-from-main int4",
    ),
    "a draft that is the main model": (
        ["export", "--main", "x", "--weight-format", "int4", "--draft-from-main", "int4"],
        "--draft-from-main int4 would be the main model itself",
    ),
    "a profile for no pair": (
        ["tune", str(ROOT / "models" / "main"), "--output", "profile.json"],
        "--output 'profile.json' has no effect without DRAFT",
    ),
    "no tools": (["generate", "x", "--tools", "nowhere"], "'nowhere' cannot be read as JSON"),
    "no list of tools": (
        ["generate", "x", "--tools", str(ROOT / "models" / "draft" / "config.json")],
        "must be a list of JSON schemas or functions",
    ),
    "no generation config": (
        ["generate", "x", "--generation-config", "own"],
        "'own' is not one of 'none', 'model'",
    ),
    "no file of results": (["batch", "x"], "Missing option '--output'"),
    "no whisper": (["transcribe", "x"], "no model is named: give a Whisper before FILES, or with"),
    "no recordings": (["transcribe", str(ROOT / "models" / "main")], "Missing argument 'FILES...'"),
    "no requests": (["batch", "--output", "y"], "Missing argument 'REQUESTS'"),
    "two files of requests": (
        ["batch", "x", "y", "--output", "z", "--main", "."],
        "REQUESTS are 2 files: give one",
    ),
    "bad bias": (["generate", "x", "--logit-bias", "4"], "'4' must have the form ID=BIAS"),
    "bad ids": (["generate", "x", "--suppress-tokens", "a,b"], "'a,b' must be token ids"),
    "unknown id": (["generate", "x", "--suppress-tokens", "9999"], "id 9999: the model has 0 to"),
    "temperature below 0": (
        ["generate", "x", "--temperature", "-1"],
        "--temperature -1.0 must be a number of at least 0",
    ),
    "temperature 0, yet drawn": (
        ["generate", "x", "--temperature", "0", "--do-sample"],
        "contradicts --do-sample: leave out",
    ),
    "top_p above 1": (
        ["generate", "x", "--top-p", "1.5"],
        "--top-p 1.5 must be a number from 0 to",
    ),
    "greedy, yet warm": (
        ["generate", "x", "--no-do-sample", "--top-k", "4"],
        "--top-k 4 has no effect with --no-do-sample",
    ),
    "needless end": (
        ["generate", "x", "--eos-token-id", "3", "--ignore-eos"],
        "--eos-token-id 3 has no effect with --ignore-eos",
    ),
    "needless hidden tokens": (
        ["generate", "x", "--kv", "paged", "--max-masked-tokens", "8"],
        "--max-masked-tokens 8 has no effect with --kv paged",
    ),
    "empty stop": (["generate", "x", "--stop", ""], "--stop '' must be a text that is not empty"),
    "no escape": (["generate", "x", "--stop", r"\d"], r"'\d' has an unknown escape"),
    "bad property": (["generate", "x", "--property", "KEY"], "'KEY' must have the form KEY=VALUE"),
    "unknown property": (["generate", "x", "--property", "NO=1"], "Unsupported property NO"),
    "missing profile": (["generate", "x", "--profile", "mine"], "the profile 'mine' cannot be"),
    "needless profile": (
        ["generate", "x", "--profile", "mine", "--num-threads", "1"],
        "--profile mine has no effect where --precision, --property, --num-threads or",
    ),
    "unknown kv": (["generate", "x", "--kv", "ring"], "'ring' is not one of"),
    "unknown option": (["generate", "x", "--wings"], "there is no option --wings (see ov-"),
    "mistyped option": (
        ["generate", "x", "--temprature", "1"],
        "there is no option --temprature: did you mean --temperature",
    ),
    "option of others": (["chat", "--model", "x"], "there is no option --model: give --main"),
    "option of vllm": (["serve", "--max-num-seqs", "4"], "--max-num-seqs: give --max-batch-size"),
    "option of llama.cpp": (["serve", "--alias", "x"], "give --served-model-name"),
    "letters of llama.cpp": (["generate", "x", "-ngl", "99"], "no option -ngl: give --device (see"),
    "the same, not help": (["serve", "-hf", "a/b"], "no option -hf: give --main (see ov-"),
    "the same, a draft": (["chat", "-md", "x"], "there is no option -md: give --draft (see ov-"),
    "the same, a flag": (["generate", "x", "-no-cnv"], "-no-cnv: give --no-chat-template (see ov-"),
    "option of export": (["serve", "--quantization", "x"], "export the model with --weight-format"),
    "underscores": (["generate", "x", "--max_new_tokens", "5"], "give --max-new-tokens (see ov-"),
    "option of vllm, in words": (["serve", "--tensor-parallel-size", "2"], "give --replicas"),
    "command as option": (["generate", "x", "--chat"], "run ov-specdec chat"),
    "a main model twice": (
        ["chat", "x", "--main", "y"],
        "MAIN is 'x', and --main y: give it once",
    ),
    "three models": (["check", "x", "y", "z"], "unexpected extra argument (z) (see ov-"),
    "option of others, not here": (["check", "-n", "5"], "there is no option -n (see ov-"),
    "option before a command": (["--model", "x"], "--model is no option of ov-specdec: give a"),
    "unquoted prompt": (
        ["generate", "def", "f"],
        "'def' is not a folder here: give the folder that holds openvino_model.xml, or a name on "
        "the Hub, which is owner/model (the first of several arguments is the model, and one with "
        "spaces needs quotes)",
    ),
    "unquoted prompt after a model": (
        ["generate", str(ROOT / "models" / "main"), "def", "f"],
        "the prompt is 2 arguments: put it into quotes, as in 'def f'",
    ),
    "unknown command": (["xyz"], "there is no command 'xyz': there are: generate, "),
    "mistyped command": (["genrate"], "no command 'genrate': did you mean generate? (see ov-"),
    "no repeats": (["compare", "x", "--repeat", "0"], "--repeat 0 must be a whole number"),
    "no time": (["tune", "--seconds", "0"], "--seconds 0.0 must be a number above 0"),
    "nothing to check": (["check", "nowhere", "nowhere"], "'nowhere' is not a folder"),
}


def refused(done):
    """The message of a run that was refused."""
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch("error: .*\n", done.stderr)
    return done.stderr


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_two(case, tmp_path):
    arguments, complaint = BAD_INPUT[case]
    assert complaint in refused(run(*arguments, cwd=tmp_path))


OWN = {
    "generate": ("x",),
    "chat": (),
    "compare": ("x",),
    "batch": ("requests", "--output", "results"),
    "transcribe": ("requests",),
    "serve": (),
    "tune": (),
    "bench": ("--output", "b.json"),
    "check": (),
}
"""The commands with a main and a draft model but the demo, and what else they are given."""

AS_ARGUMENT, AS_OPTION = (), ("--main",)


def named(command, main, *draft, before=AS_OPTION):
    """A command with a main model as argument or option. draft: a draft model, if any."""
    drafts = ("--draft", *draft) if draft else ()
    return [command, *before, main, *OWN[command], *drafts]


@pytest.mark.parametrize("before", [AS_ARGUMENT, AS_OPTION])
@pytest.mark.parametrize("draft", [(), ("/no/draft",)])
@pytest.mark.parametrize("command", OWN)
def test_a_path_that_is_wrong_is_said_to_be_so_whatever_else_is_missing(
    command, draft, before, tmp_path
):
    (tmp_path / "requests").touch()
    (tmp_path / "smollm2-int8" / "main").mkdir(parents=True)
    for given, complaint in (
        ("/no/where", "'/no/where' does not exist: give the folder"),
        ("gpt2", "'gpt2' is not a folder here: give the folder"),
        ("smolm2-int8", "'smolm2-int8' is not a folder here: did you mean smollm2-int8?"),
        (f"{tmp_path}/smolm2/main", f"does not exist: did you mean {tmp_path}/smollm2-int8/main?"),
    ):
        done = run(*named(command, given, *draft, before=before), cwd=tmp_path)
        assert complaint in refused(done)
        assert given != "gpt2" or "a name on the Hub, which is owner/model" in done.stderr


@pytest.mark.parametrize("command", [command for command in OWN if command != "transcribe"])
def test_a_draft_needs_a_main_model(command, tmp_path):
    (tmp_path / "requests").touch()
    done = run(command, *OWN[command], "--draft", "folder", cwd=tmp_path)
    assert refused(done) == "error: --draft folder needs --main: give that too\n"


@pytest.mark.parametrize("main", ["nowhere/main", "/no/where"])
def test_other_commands_take_the_model_as_argument_and_option_too(main, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "nowhere2" / "main").mkdir(parents=True)
    for command in ("devices", "check"):
        for before in (AS_ARGUMENT, AS_OPTION):
            message = refused(run(command, *before, main, cwd=tmp_path))
            assert f"'{main}'" in message
            assert ("did you mean nowhere2/main?" in message) == (main == "nowhere/main")


def test_a_folder_with_a_model_is_one_also_beside_a_prompt_from_elsewhere():
    done = run("generate", ROOT / "models" / "main", "--drafter", "none", stdin=b"")
    assert "stdin is empty" in refused(done)


def test_without_a_prompt_at_a_terminal_all_ways_are_named():
    message = "error: there is no prompt: give a PROMPT or --prompt-file, or pipe text in\n"
    assert refused(run("generate", stdin=None)) == message


def test_bytes_that_are_not_utf_8_are_no_prompt(tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"a\xff")
    for done in (
        run("generate", "--prompt-file", file),
        run("generate", "--prompt-file", "-", stdin=b"a\xff"),
        run("generate", stdin=b"a\xff"),
    ):
        assert "cannot be read as text: 'utf-8' codec can't decode byte 0xff" in refused(done)


@pytest.fixture
def no_loading(monkeypatch):
    """Whoever loads a model fails."""

    def load(*args, **kwargs):
        raise AssertionError("loaded")

    monkeypatch.setattr("ov_specdec.generation.models.load_models", load)
    monkeypatch.setattr("ov_specdec.generation.models.open_source", load)


@pytest.mark.parametrize("command", ["generate", "compare"])
@pytest.mark.parametrize(
    "options",
    [("--max-new-tokens", "0"), ("--prompt-lookup-num-tokens", "2"), ("--seed", "-1"), ("",)],
)
def test_options_and_prompts_are_checked_before_models_are_loaded(command, options, no_loading):
    refused(run(command, *options, *(() if options == ("",) else ("x",))))
    with pytest.raises(AssertionError, match="loaded"):
        run(command, "x")


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--port", "99999", "--port 99999 must be a whole number from 0 to 65535"),
        ("--host", "nohost.invalid", "--host 'nohost.invalid' cannot be used ("),
    ],
)
def test_addresses_are_checked_before_models_are_loaded(option, value, complaint, no_loading):
    assert complaint in refused(run("demo", option, value))


def test_a_prompt_beyond_the_context_is_bad_input(tiny_pair):
    models = ("--main", tiny_pair[0], "--draft", tiny_pair[1])
    done = run("generate", "--prompt-file", "-", *models, stdin=b"x y " * 300)
    said = r"error: This model's maximum context length is 256 tokens\. .* with \d+ tokens: shorten"
    assert re.match(said, refused(done))


def test_a_draft_with_another_tokenizer_is_bad_input(tiny_pair, tmp_path):
    other = shutil.copytree(tiny_pair[1], tmp_path / "other")
    save_tokenizer(other, sample="another text altogether, so other merges")
    done = run("generate", "x", "--main", tiny_pair[0], "--draft", other)
    assert refused(done).startswith("error: draft and main have different tokenizers")


def change(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


BROKEN_MODELS = {
    "stateless IR": (save_stateless_ir, "is not a stateful decoder: export it"),
    "context": (
        lambda folder: change(folder / "config.json", max_position_embeddings="many"),
        "config.json gives max_position_embeddings as 'many' (input should be a valid integer)",
    ),
    "end": (
        lambda folder: change(folder / "generation_config.json", **{"eos_token_id": "</s>"}),
        "gives eos_token_id as '</s>' (input should be a valid integer)",
    ),
    "sampling": (
        lambda folder: change(folder / "generation_config.json", top_p=1.5),
        "top_p 1.5 must be a number from 0 to 1; correct it, or leave it out with "
        "--generation-config none",
    ),
    "chat template": (
        lambda folder: (folder / "chat_template.jinja").write_text("{{ messages[0] "),
        "chat template cannot render",
    ),
    "chat template that divides by zero": (
        lambda folder: (folder / "chat_template.jinja").write_text("{{ 1 / 0 }}"),
        "chat template cannot render",
    ),
    "chat template that raises": (
        lambda folder: (folder / "chat_template.jinja").write_text("{{ messages[0]['a']['b'] }}"),
        "or give the prompt with --no-chat-template",
    ),
    "tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        "tokenizer.json cannot be read",
    ),
}


@pytest.mark.parametrize("case", BROKEN_MODELS)
def test_a_broken_model_is_bad_input(case, tiny_pair, tmp_path):
    break_it, complaint = BROKEN_MODELS[case]
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    break_it(main)
    options = ("--main", main, "--drafter", "none", "--generation-config", "model")
    assert complaint in refused(run("generate", "x", *options))


def test_a_port_in_use_is_bad_input():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message = refused(run("demo", "--port", port))
    assert f"--host '127.0.0.1' --port {port} cannot be used" in message


def test_debug_shows_the_traceback():
    done = run("generate", "x", "--main", "nowhere", "--drafter", "none", "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: 'nowhere'")
