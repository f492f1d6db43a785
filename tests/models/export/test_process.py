"""Real exports that are killed, interrupted, or run twice at once; only Optimum is a stub."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from ov_specdec.errors import ExportError
from ov_specdec.models.export import partial_folder, run_optimum
from tests.support.optimum import names, stub_optimum

DEADLINE = 120
"""Seconds after which something that should have happened never will."""

# Half an export; then it reports to the test, and waits until it may write the rest.
OPTIMUM = """
import os, pathlib, socket, sys
target = pathlib.Path(sys.argv[-1])
target.mkdir()
(target / "openvino_model.xml").touch()
with socket.create_connection(("127.0.0.1", int(os.environ["TEST_PORT"]))) as test:
    test.sendall(b"half")
    assert test.recv(2) == b"go"
for name in ("openvino_model.bin", "config.json", "tokenizer.json"):
    (target / name).write_text("{}")
"""


class Exports:
    """Starts exports of one checkpoint into `output`."""

    def __init__(self, folder, server):
        self.output = folder / "models"
        self.server = server
        self.source = folder / "x"
        self.source.mkdir()
        for name in ("config.json", "tokenizer.json"):
            (self.source / name).write_text("{}")
        stub_optimum(folder / "stub", OPTIMUM)
        port = str(server.getsockname()[1])
        self.environment = {**os.environ, "PYTHONPATH": str(folder / "stub"), "TEST_PORT": port}

    @contextmanager
    def start(self):
        """A process that exports."""
        command = [sys.executable, "-m", "ov_specdec", "export"]
        command += ["--main", str(self.source), "--output", str(self.output)]
        with subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def at_work(self):
        """Such a process, and the connection to its Optimum, which is at work now."""
        with self.start() as process:
            optimum, _ = self.server.accept()
            with optimum:
                optimum.settimeout(DEADLINE)
                assert optimum.recv(4) == b"half"
                yield process, optimum


@pytest.fixture
def exports(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE)
        yield Exports(tmp_path, server)


def finish(process, optimum):
    optimum.sendall(b"go")
    return process.communicate(timeout=DEADLINE)


def has_ended(optimum):
    """Wait until a process has closed its connection, as the system does at its end."""
    try:
        return optimum.recv(1) == b""
    except ConnectionResetError:  # what Windows says
        return True


def test_a_killed_export_takes_optimum_along_and_the_next_run_clears_up(exports):
    with exports.at_work() as (process, optimum):
        process.kill()
        process.wait(DEADLINE)
        assert has_ended(optimum)
    assert names(exports.output) == [".x-fp16", ".x-fp16.lock"]
    other = exports.output / ".x-fp16.old-fp16"  # of a model called x-fp16.old
    other.mkdir()

    with exports.at_work() as running:
        assert finish(*running) == (f"{exports.output / 'x-fp16'}\n", "")
    assert names(exports.output) == [other.name, "x-fp16"]


def test_a_second_export_of_the_same_model_is_refused_and_disturbs_nothing(exports):
    with exports.at_work() as running:
        before = names(exports.output)
        with exports.start() as second:
            printed, complaint = second.communicate(timeout=DEADLINE)
        assert (second.returncode, printed) == (2, "")
        assert complaint == (
            f"error: another process is making {exports.output / 'x-fp16'}: wait until it ends, or "
            "choose another --output\n"
        )
        assert names(exports.output) == before
        assert finish(*running) == (f"{exports.output / 'x-fp16'}\n", "")
    assert names(exports.output) == ["x-fp16"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_an_interrupted_export_ends_optimum_and_leaves_nothing(exports):
    with exports.at_work() as (process, optimum):
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=DEADLINE)
        assert has_ended(optimum)
    assert (process.returncode, complaint) == (130, "interrupted\n")
    assert names(exports.output) == []


ASKS = f"""
import faulthandler, importlib.util, profile, sys, tempfile
faulthandler.dump_traceback_later({DEADLINE}, exit=True)
print(sys.argv[1:3], tempfile.gettempdir(), importlib.util.find_spec("here"), profile.Profile)
input()
"""


def test_optimum_gets_no_answers_and_nothing_of_the_current_folder(tmp_path, monkeypatch, capfd):
    stub_optimum(tmp_path / "stub", ASKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    (tmp_path / "here.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError, match="Optimum failed with exit status 1"):
        run_optimum("x", "llama", tmp_path / "made", [])
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == f"['export', 'openvino'] {tmp_path} None <class 'profile.Profile'>"
    assert lines[-1].startswith("EOFError")


def test_what_another_process_has_made_meanwhile_is_left_alone(tmp_path):
    (tmp_path / "x").mkdir()
    complaint = r"another process has just made .*x: run this again"
    with pytest.raises(ExportError, match=complaint), partial_folder(tmp_path, "x"):
        pytest.fail("it may be written")
    assert names(tmp_path) == ["x"]
