"""The command line through its own entry point, with every bad input of the interface."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import ov_specdec
from tests.tiny import save_stateless_ir, save_tokenizer

COMMAND = str(Path(sysconfig.get_path("scripts")) / "ov-specdec")


def run(*arguments, stdin=None, cwd=None):
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


@pytest.fixture(scope="module")
def pair(tiny_pair):
    return ("--main", tiny_pair[0], "--draft", tiny_pair[1], "--precision", "exact")


def test_generate_prints_the_text_and_one_line_of_statistics():
    done = run("generate", "def fibonacci(n):", "--max-new-tokens", 24)
    assert done.returncode == 0
    assert len(done.stdout) > 10
    assert len(done.stderr.splitlines()) == 1
    assert re.search(r"\d+ tokens in .* tokens/s.* candidates accepted .* paged", done.stderr)


def test_generate_json_is_one_object_and_nothing_else(pair):
    done = run("generate", "def area(", *pair, "--json", "--max-new-tokens", 20, "--ignore-eos")
    assert done.returncode == 0
    assert done.stderr == ""
    content = json.loads(done.stdout)
    assert set(content) == {
        "text",
        "token_ids",
        "prompt_tokens",
        "generated_tokens",
        "finish_reason",
        "stats",
    }
    assert content["generated_tokens"] == len(content["token_ids"]) == 20
    assert content["finish_reason"] == "length"
    assert content["stats"]["drafted"] > 0


def test_the_prompt_may_come_from_a_file_or_from_stdin(pair, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("def größe(", encoding="utf-8")
    options = (*pair, "--max-new-tokens", 8, "--json")
    by_argument = run("generate", "def größe(", *options)
    by_file = run("generate", "--prompt-file", file, *options)
    by_stdin = run("generate", "--prompt-file", "-", *options, stdin="def größe(")
    outputs = {json.loads(d.stdout)["text"] for d in (by_argument, by_file, by_stdin)}
    assert len(outputs) == 1


def test_options_reach_the_pipeline(pair):
    def text(*options):
        done = run("generate", "def area(", *pair, "--ignore-eos", "--json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    full = text("--max-new-tokens", 30)
    stop = full["text"][10:13]
    assert text("--stop", stop)["text"] == full["text"][: full["text"].index(stop)]
    constant = text("--num-assistant-tokens", 2, "--max-new-tokens", 30, "--kv", "stateful")
    assert constant["token_ids"] == full["token_ids"]
    assert constant["stats"]["drafted"] <= 2 * (constant["stats"]["main_passes"] - 1)
    threads = text("--property", "INFERENCE_NUM_THREADS=1", "--max-new-tokens", 30)
    assert threads["token_ids"] == full["token_ids"]


def test_drafters_without_a_draft_model(tiny_pair):
    for drafter in ("prompt-lookup", "none"):
        done = run("generate", "def", "--main", tiny_pair[0], "--drafter", drafter, "--json")
        assert done.returncode == 0, done.stderr
        assert (json.loads(done.stdout)["stats"]["drafted"] > 0) is (drafter == "prompt-lookup")


def test_compare_says_whether_both_texts_are_equal_and_which_was_faster(pair):
    options = (*pair, "--max-new-tokens", 20, "--ignore-eos", "--repeat", 2)
    options += ("--num-assistant-tokens", 4)  # by itself it would see that this draft does not pay
    done = run("compare", "def area(", *options, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equal"] is True
    assert report["plain"]["text"] == report["speculative"]["text"]
    assert report["plain"]["stats"]["drafted"] == 0 < report["speculative"]["stats"]["drafted"]
    ratio = report["plain"]["seconds"] / report["speculative"]["seconds"]
    assert report["ratio"] == pytest.approx(ratio)

    done = run("compare", "def area(", *options)
    assert "equal        yes, token for token" in done.stdout
    assert re.search(r"ratio        \d+\.\d\d", done.stdout)


def test_check_tells_compatible_from_not_by_its_exit_code(tiny_pair, tmp_path):
    same = run("check", *tiny_pair)
    assert same.returncode == 0
    assert same.stdout.endswith("\ncompatible\n")

    other = shutil.copytree(tiny_pair[1], tmp_path / "other")
    save_tokenizer(other, sample="another text altogether, so other merges")
    different = run("check", tiny_pair[0], other)
    assert different.returncode == 1
    assert re.search(r"merges: \d+ difference", different.stdout)
    assert different.stdout.endswith("\nnot compatible\n")

    assert run("check", tiny_pair[0], "nowhere").returncode == 2


def test_devices_lists_the_cpu():
    done = run("devices")
    assert done.returncode == 0
    assert re.search(r"^CPU\t.*FP32.*\tkv paged$", done.stdout, re.MULTILINE)


def test_version():
    assert run("--version").stdout == f"ov-specdec, version {ov_specdec.__version__}\n"


def test_export_and_the_shell_script_are_one(tmp_path):
    script = Path(__file__).parent.parent / "export.sh"
    environment = {**os.environ, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(script), "--main", "nowhere", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 2
    assert (
        done.stderr == "error: 'nowhere' is neither a folder nor a Hub name such as owner/model\n"
    )


BAD_INPUT = {
    "empty prompt": (["generate", ""], "the prompt is empty"),
    "no prompt": (["generate"], "give a PROMPT or --prompt-file, not neither"),
    "two prompts": (["generate", "x", "--prompt-file", "y"], "not both"),
    "missing prompt file": (["generate", "--prompt-file", "/nowhere"], "'/nowhere' cannot be read"),
    "no folder": (["generate", "x", "--main", "nowhere", "--drafter", "none"], "'nowhere' is not"),
    "no IR": (["generate", "x", "--main", ".", "--drafter", "none"], "holds no openvino_model.xml"),
    "no draft": (["generate", "x", "--main", "."], "no draft model for main '.'"),
    "unknown device": (["generate", "x", "--device", "TPU"], "device 'TPU' is not available"),
    "unknown draft device": (["generate", "x", "--draft-device", "TPU"], "device 'TPU' is not"),
    "negative budget": (["generate", "x", "--max-new-tokens", "-1"], "max_new_tokens=-1"),
    "negative length": (
        ["generate", "x", "--num-assistant-tokens", "-1"],
        "num_assistant_tokens=-1",
    ),
    "no number": (
        ["generate", "x", "--num-assistant-tokens", "few"],
        "'few' must be auto or a whole number",
    ),
    "bad bias": (["generate", "x", "--logit-bias", "4"], "'4' must have the form ID=BIAS"),
    "bad ids": (["generate", "x", "--suppress-tokens", "a,b"], "'a,b' must be token ids"),
    "unknown id": (["generate", "x", "--suppress-tokens", "9999"], "id 9999: the model has 0 to"),
    "temperature 0": (
        ["generate", "x", "--temperature", "0"],
        "temperature=0.0 must be a number ab",
    ),
    "top_p above 1": (
        ["generate", "x", "--top-p", "1.5"],
        "top_p=1.5 must be a number from 0.0 to",
    ),
    "greedy, yet warm": (
        ["generate", "x", "--no-do-sample", "--top-k", "4"],
        "top_k=4 has no effect",
    ),
    "bad property": (["generate", "x", "--property", "KEY"], "'KEY' must have the form KEY=VALUE"),
    "unknown property": (["generate", "x", "--property", "NO=1"], "Unsupported property NO"),
    "unknown kv": (["generate", "x", "--kv", "ring"], "'ring' is not one of"),
    "unknown option": (["generate", "x", "--fast"], "No such option '--fast'"),
    "unknown command": (["decode"], "No such command 'decode'"),
    "no repeats": (["compare", "x", "--repeat", "0"], "repeat=0 must be a whole number"),
    "nothing to check": (["check", "nowhere", "nowhere"], "'nowhere' is not a folder"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_two(case, tmp_path):
    arguments, complaint = BAD_INPUT[case]
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert complaint in done.stderr


def test_a_prompt_beyond_the_context_is_bad_input(pair):
    done = run("generate", "--prompt-file", "-", *pair, stdin="x y " * 300)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"error: the prompt has \d+ tokens, the model's context 256 .*\n", done.stderr
    )


def test_a_draft_with_another_tokenizer_is_bad_input(tiny_pair, tmp_path):
    other = shutil.copytree(tiny_pair[1], tmp_path / "other")
    save_tokenizer(other, sample="another text altogether, so other merges")
    done = run("generate", "x", "--main", tiny_pair[0], "--draft", other)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: draft and main have different tokenizers")
    assert len(done.stderr.splitlines()) == 1


def test_an_ir_that_is_not_stateful_is_bad_input(tiny_pair, tmp_path):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    save_stateless_ir(main)
    done = run("generate", "x", "--main", main, "--drafter", "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a stateful decoder: export it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_debug_shows_the_traceback():
    done = run("generate", "x", "--main", "nowhere", "--drafter", "none", "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: 'nowhere'")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_an_interrupted_run_ends_in_one_line():
    process = subprocess.Popen(
        [COMMAND, "generate", "def f(x):", "--max-new-tokens", "900", "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = process.stdout.read(1)  # it is decoding now
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert first
    assert process.returncode == 2
    assert re.fullmatch(r"error: interrupted after \d+ of 900 tokens: .*\n", errors)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
def test_a_reader_that_leaves_ends_the_run_quietly():
    process = subprocess.Popen(
        [COMMAND, "generate", "def f(x):", "--max-new-tokens", "300", "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.read(1)
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.wait(timeout=60)
