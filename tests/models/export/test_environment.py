"""Exports with another version of transformers, which uv lays over what is installed."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from ov_specdec.errors import ExportError
from ov_specdec.models.export import export_model
from ov_specdec.models.optimum import python_with
from tests.support.kept import save_checkpoint

# Notes its arguments, and runs the command with a version of transformers of its own.
UV = """
import os, subprocess, sys
from pathlib import Path
here = Path(__file__).parent
(here / "arguments").write_text("\\n".join(sys.argv[1:]))
(here / "transformers.py").write_text("__version__ = 'laid over'")
command = sys.argv[sys.argv.index("python") + 1 :]
sys.exit(subprocess.call([sys.executable, *command], env={**os.environ, "PYTHONPATH": str(here)}))
"""


def test_uv_lays_a_version_over_this_environment(tmp_path, monkeypatch):
    (tmp_path / "uv.py").write_text(UV)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import transformers, torch; print(transformers.__version__)"
    done = subprocess.run([*python_with("5.2.*"), "-c", code], capture_output=True, text=True)
    assert done.stdout == "laid over\n", done.stderr
    assert (tmp_path / "arguments").read_text().splitlines()[:5] == [
        "run",
        "--no-project",
        f"--python={sys.executable}",
        "--with=transformers==5.2.*",
        f"--with=numpy=={version('numpy')}",
    ]


def test_the_installed_version_needs_no_uv():
    assert python_with(None) == [sys.executable]


def test_without_uv_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"uv is not installed: .*pip install '\.\[export\]'"):
        python_with("5.0")


@pytest.mark.deep
def test_a_family_is_exported_with_the_version_that_it_wants(tmp_path, capfd):
    save_checkpoint("gemma3_text", tmp_path / "gemma3")
    with pytest.raises(ExportError, match=r"where it asks for another version of transformers"):
        export_model(str(tmp_path / "gemma3"), tmp_path, "int8")
    assert "Maximum required is 5.0" in capfd.readouterr().err
    exported = export_model(str(tmp_path / "gemma3"), tmp_path, "int8", transformers="5.0")
    assert exported.is_new
