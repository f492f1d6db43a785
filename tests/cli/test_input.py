"""Every bad input of the command line: one line on stderr, exit code 2."""

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from ov_specdec.cli.declare import WAYS
from tests.support.command_line import AS_ARGUMENT, AS_OPTION, refused, run
from tests.support.folders import change

ROOT = Path(__file__).parents[2]

MAIN = ROOT / "models" / "main"
BAD_INPUT = {
    "generate": "stdin is empty: give at least one token of text, or a PROMPT",
    f"generate x --prompt-file {__file__}": "give a PROMPT or --prompt-file, not both",
    "generate --prompt-file /nowhere": "'/nowhere' cannot be read as text: [Errno 2] No such file",
    "generate a\udcff": "the prompt is not valid text at character 1",
    "generate x --main . --drafter none": "holds no model: give the",
    "generate x --main . --drafter model": "no draft model for --main .: give --draft, or choose",
    "generate x --main . --draft folder --drafter none": (
        "--draft folder has no effect with --drafter none"
    ),
    "generate x --num-assistant-tokens few": "'few' must be auto or a whole number",
    "generate x --num-assistant-tokens 4 --drafter none": (
        "--num-assistant-tokens 4 needs a drafter, and --drafter none has none"
    ),
    "generate x --suppress-tokens a,b": "'a,b' must be token ids",
    "generate x --temperature 0 --do-sample": "contradicts --do-sample: leave out",
    "generate x --stop '\\d'": "'\\d' has an unknown escape",
    "generate x --property KEY": "'KEY' must have the form KEY=VALUE",
    "export --main x --draft y --draft-from-main int4": (
        "--draft 'y' contradicts --draft-from-main int4"
    ),
    f"tune {MAIN} --output profile.json": "--output 'profile.json' has no effect without DRAFT",
    "bench --methods plain,fast": "method 'fast' does not exist: use plain",
    "bench --rounds 0": "--rounds 0 must be a whole number",
    f"bench --prompt-file {os.devnull}": "holds no prompt",
    "bench --prompts code --prompt-file x": "or --prompt-file 'x', not both",
    f"bench --output {os.devnull}/x.json": f"'{os.devnull}' cannot be used",
    "bench --concurrency 1,0": "--concurrency 0 must be a whole number of at",
    "bench --concurrency few": "'few' must be whole numbers: 1,2,4",
    f"transcribe {MAIN}": "Missing argument 'FILES...'",
    "batch x y --output z --main .": "REQUESTS are 2 files: give one",
    "chat x --main y": "MAIN is 'x', and --main y: give it once",
    "generate def f": (
        "'def' is not a folder here: give the folder that holds openvino_model.xml, or a name on "
        "the Hub, which is owner/model (the first of several arguments is the model, and one with "
        "spaces needs quotes: 'def f')"
    ),
    f"generate {MAIN} def f": "the prompt is 2 arguments: put it into quotes, as in 'def f'",
    "generate x --temprature 1": "there is no option --temprature: did you mean --temperature",
    "generate x --max_new_tokens 5": "give --max-new-tokens (see ov-",
    "generate x --max-tokens 5": "no option --max-tokens: give --max-new-tokens (see ov-",
    "generate x --chat": "no option --chat: run ov-specdec chat",
    "generate x -ngl 99": "no option -ngl: give --device",
    "generate x --device cuda": "(an Intel GPU is GPU)",
    "generate x --main model.gguf": "GGUF file, a format that is not read: export the original",
    "generate x --drafter lookup": "'lookup' is not one of 'model', 'suffix', 'both', 'prompt-lo",
    "generate x --top-p 2": "--top-p 2.0 must be a number from 0 to 1",
    "generate ''": "the prompt is empty: give at least one token of text, or a PROMPT",
    "generate x --kv-cache-size 0.000000001": "--kv-cache-size 1e-09 has no room for 32 tokens",
    "generate x --profile /no/profile": "'/no/profile' cannot be read ([Errno 2] No such file",
    "chat": "no chat template: give a chat model as main, or continue a text with ov-specdec gen",
    "serve --port 99999": "--port 99999 must be a whole number from 0 to 65535",
    "export": "no model is named: give --main NAME, --draft NAME or both",
    "genrate": "no command 'genrate': did you mean generate? (see ov-",
}
"""One command for each kind of mistake, and what is said of it."""


@pytest.mark.parametrize("line", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_two(line, tmp_path):
    assert BAD_INPUT[line] in refused(run(*shlex.split(line), cwd=tmp_path))
    assert not list(tmp_path.iterdir())


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


def named(command, main, *draft, before=AS_OPTION):
    """A command with a main model as argument or option. draft: a draft model, if any."""
    drafts = ("--draft", *draft) if draft else ()
    return [command, *before, main, *OWN[command], *drafts]


@pytest.mark.parametrize("command", OWN)
def test_a_wrong_path_is_said_to_be_so_whatever_else_is_missing(command, tmp_path):
    (tmp_path / "requests").touch()
    (tmp_path / "smollm2-int8" / "main").mkdir(parents=True)
    for given, complaint in (
        ("/no/where", "'/no/where' does not exist: give the folder"),
        ("gpt2", r"'gpt2' is not a folder here: give the folder .* a name on the Hub"),
        ("smolm2-int8", "'smolm2-int8' is not a folder here: did you mean smollm2-int8"),
        (f"{tmp_path}/smolm2/main", f"does not exist: did you mean {tmp_path}/smollm2-int8/main"),
    ):
        before = AS_ARGUMENT if given == "/no/where" else AS_OPTION
        done = run(*named(command, given, "/no/draft", before=before), cwd=tmp_path)
        assert re.search(complaint, refused(done))


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


def test_a_byte_order_mark_is_none(tmp_path, monkeypatch):
    for metavar, text, value in (("TEXT-FILE", "größe\n", "größe\n"), ("JSON-FILE", "[1]", [1])):
        file = tmp_path / metavar
        file.write_text(text, encoding="utf-8-sig")
        monkeypatch.setattr("sys.stdin", file.open(encoding="utf-8"))
        assert [WAYS[metavar].parse(given) for given in (f"{file}", "-")] == [value, value]


@pytest.fixture
def no_loading(monkeypatch):
    """Whoever loads a model fails."""

    def load(*args, **kwargs):
        raise AssertionError("loaded")

    monkeypatch.setattr("ov_specdec.generation.pipeline.load_models", load)
    monkeypatch.setattr("ov_specdec.generation.pipeline.open_exported", load)


@pytest.mark.parametrize("command", ["generate", "compare"])
@pytest.mark.parametrize(
    "options",
    [("--max-new-tokens", "0"), ("--prompt-lookup-num-tokens", "2"), ("--seed", "-1"), ("",)],
)
def test_options_and_prompts_are_checked_before_models_are_loaded(command, options, no_loading):
    refused(run(command, *options, *(() if options == ("",) else ("x",))))
    with pytest.raises(AssertionError, match="loaded"):
        run(command, "x")


BROKEN_MODELS = {
    "sampling": (
        lambda folder: change(folder / "generation_config.json", top_p=1.5),
        "top_p 1.5 must be a number from 0 to 1; correct it, or leave it out with "
        "--generation-config none",
    ),
    "chat template that raises": (
        lambda folder: (folder / "chat_template.jinja").write_text("{{ messages[0]['a']['b'] }}"),
        "or give the prompt with --no-chat-template",
    ),
}


@pytest.mark.parametrize("case", BROKEN_MODELS)
def test_a_broken_model_is_bad_input(case, tiny_pair, tmp_path):
    break_it, complaint = BROKEN_MODELS[case]
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    break_it(main)
    options = ("--main", main, "--drafter", "none")
    assert complaint in refused(run("generate", "x", *options))


def test_debug_shows_the_traceback():
    done = run("generate", "x", "--main", "nowhere", "--drafter", "none", "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: 'nowhere'")
