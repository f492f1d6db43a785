"""What only a process of its own can show: what is loaded, signals, closed and full streams."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import ov_specdec
from ov_specdec.cli.app import COMMANDS
from ov_specdec.models.export import run_optimum
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.optimum import stub_optimum

COMMAND = str(Path(sysconfig.get_path("scripts")) / "ov-specdec")
LLAMA = "meta-llama/Llama-2-7b-chat-hf"
TINY_LLAMA = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and devices as POSIX has them")


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from ov_specdec.cli import main
main()
"""

REFUSE_NETWORK = """
import os, sys

def refuse(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}:
        with open(os.environ["REFUSED"], "a") as file:
            file.write(f"{event} {arguments}\\n")
        raise OSError("this test has no network")

sys.addaudithook(refuse)
"""


def run(*command, **settings):
    return subprocess.run(
        list(map(str, command)),
        **{"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 120, **settings},
    )


def python(code, *arguments, **settings):
    return run(sys.executable, "-c", code, *arguments, **settings)


def test_the_version_is_told_without_loading_openvino():
    code = "import sys, ov_specdec.cli, atexit; {}; ov_specdec.cli.main()".format(
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    )
    done = python(code, "--version")
    assert done.returncode == 0
    assert done.stdout == f"ov-specdec, version {ov_specdec.__version__}\n"
    loaded = set(done.stderr.split())
    assert "ov_specdec.cli.app" in loaded
    assert not loaded & {"openvino", "numpy", "rich", "tokenizers", "ov_specdec.pipeline"}


def test_no_command_imports_what_is_heavy():
    heavy = {"torch", "transformers", "optimum", "gradio", "matplotlib", "openvino_genai"}
    modules = [f"ov_specdec.cli.{module}" for module in COMMANDS.values()]
    done = python(f"import sys, {', '.join(modules)}; print({heavy} & set(sys.modules))")
    assert done.stdout == "set()\n", done.stderr


OVC = """
import runpy, sys
sys.argv[1:] = ["--version"]
runpy.run_module("openvino.tools.ovc", run_name="__main__")
"""


@pytest.mark.deep
def test_nothing_is_reported_to_anyone(tmp_path, monkeypatch):
    # Every Python process runs it at its start, those that OpenVINO forks to report included.
    (tmp_path / "sitecustomize.py").write_text(REFUSE_NETWORK)
    refused = tmp_path / "refused"
    for name in ("CI", "TF_BUILD", "JENKINS_URL"):  # OpenVINO reports nothing where they are set
        monkeypatch.delenv(name, raising=False)
    for name, value in {"PYTHONPATH": tmp_path, "HOME": tmp_path, "REFUSED": refused}.items():
        monkeypatch.setenv(name, str(value))
    done = run(COMMAND, "generate", "x = ", "--max-new-tokens", "2")
    assert done.returncode == 0, done.stderr
    stub_optimum(tmp_path, OVC)
    run_optimum("x", "llama", tmp_path / "made", [])
    assert not refused.exists(), refused.read_text()
    assert not (tmp_path / "intel").exists()
    python("import openvino")
    assert "google-analytics" in refused.read_text()  # so this test would see it


@POSIX
@pytest.mark.parametrize("module", ["click", "openvino"])
def test_an_interrupt_during_an_import_ends_in_one_line(module, tmp_path):
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    (tmp_path / f"{module}.py").write_text(kill)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run(COMMAND, "devices", env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def decoding():
    """A process that is writing a long text."""
    process = subprocess.Popen(
        [COMMAND, "generate", "def f(x):", "--max-new-tokens", "900", "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert process.stdout.read(1)
    return process


@POSIX
def test_an_interrupted_run_ends_in_one_line():
    process = decoding()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(r"interrupted after \d+ tokens\n", errors)


@POSIX
def test_a_reader_that_leaves_ends_the_run_quietly():
    process = decoding()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
@pytest.mark.parametrize("arguments", [["--version"], ["generate", "x", "--max-new-tokens", "2"]])
def test_a_full_device_is_one_line(arguments):
    # With a buffer, as usual: Python tries to write what is left in it at exit, and complains.
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    streams = {"capture_output": False, "stderr": subprocess.PIPE, "env": environment}
    with Path("/dev/full").open("w") as full:
        done = run(COMMAND, *arguments, stdout=full, **streams)
    assert done.returncode == 2
    message = r"error: the output cannot be written \(No space left on device\): free space.*\n"
    assert re.fullmatch(message, done.stderr)


def test_a_chat_model_without_torch_prints_nothing_else(tiny_pair, tmp_path):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    (main / "chat_template.jinja").write_text("<eos>{{ messages[0]['content'] }}:")
    options = ("--drafter", "none", "--max-new-tokens", 2, "--json")
    done = python(WITHOUT_TORCH, "generate", "Hi", "--main", main, *options)
    assert (done.returncode, done.stderr) == (0, "")
    num_tokens = len(load_tokenizer(main).encode("<eos>Hi:"))
    assert json.loads(done.stdout)["prompt_tokens"] == num_tokens


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], ["--main", LLAMA, "--draft", TINY_LLAMA]),
        (["--sym"], ["--main", LLAMA, "--draft", TINY_LLAMA, "--sym"]),
        (["--draft=own/x"], ["--draft=own/x"]),
        (["--help"], ["--help"]),
    ],
)
def test_the_shell_script_names_a_pair_where_none_is_named(tmp_path, arguments, passed):
    command = tmp_path / "ov-specdec"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run(Path(__file__).parents[2] / "export.sh", *arguments, env=environment)
    assert done.stdout.splitlines()[3:] == passed
