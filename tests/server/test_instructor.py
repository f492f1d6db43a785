"""Instructor, in an environment of its own, on the server as it is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import NAME

pytestmark = pytest.mark.deep

SCRIPT = Path(__file__).parent / "clients" / "with_instructor.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with the package."""
    folder = tmp_path_factory.mktemp("instructor")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "instructor>=1.17,<2"]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    return python


def test_it_gets_instances_at_the_first_attempt(python, server):
    command = [python, SCRIPT, f"{server.url}/v1", NAME]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["made"] == answer["last"] == json.loads(answer["text"])
    assert answer["made"]["name"] in ("small", "large")
    assert answer["num_partial"] > 3
