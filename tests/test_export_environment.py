"""Environments for export: made once, with uv or pip, of little; what happens where that fails."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from ov_specdec.errors import ExportError, OptionError
from ov_specdec.loading import export_environment
from ov_specdec.loading.export import export_model
from ov_specdec.loading.export_environment import find_python
from tests.tiny_windows import save_checkpoint

# Makes an environment of links, with a version of transformers, or fails as without network.
UV = f"""#!{sys.executable}
import os, sys
from pathlib import Path
print("uv", *sys.argv[1:])
if sys.argv[1] == "venv":
    import venv
    venv.create(sys.argv[-1], symlinks=True)
elif os.environ.get("OFFLINE"):
    print("error: Failed to fetch: https://pypi.org/simple/transformers/", file=sys.stderr)
    sys.exit(2)
else:
    packages = next(Path(sys.argv[4]).parent.parent.glob("lib/*/site-packages"))
    (packages / "transformers.py").write_text(f"__version__ = '{{sys.argv[5]}}'")
    print(" + transformers")
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The user's cache folder, and a stub of uv on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(UV)
    (tmp_path / "bin" / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ov-specdec" / "export"


def versions(python):
    """Of transformers in an environment, and of a package that is seen from there."""
    code = "import transformers, torch; print(transformers.__version__, torch.__version__)"
    return subprocess.check_output([python, "-c", code], text=True).split()


def test_an_environment_has_its_own_transformers_and_sees_all_else(cache):
    import torch

    lines = []
    python = find_python("5.0", lines.append)
    assert python.is_relative_to(cache)
    assert versions(python) == ["transformers==5.0", torch.__version__]
    assert lines[-1] == "+ transformers"
    # Made once; another version is another environment.
    assert find_python("5.0", lines.append) == python
    assert len([line for line in lines if line.startswith("uv venv")]) == 1
    assert versions(find_python("5.2.*"))[0] == "transformers==5.2.*"


def test_what_is_installed_there_suits_what_is_seen_from_there(cache):
    limits = find_python("5.0").parent.parent / "constraints.txt"
    assert any(line.startswith("numpy==") for line in limits.read_text().splitlines())
    assert "transformers" not in limits.read_text()


def test_without_network_nothing_is_left_and_the_next_try_makes_it(cache, monkeypatch):
    monkeypatch.setenv("OFFLINE", "1")
    with pytest.raises(ExportError, match=r"cannot be made \(error: Failed to fetch.*network") as e:
        find_python("5.0")
    assert "\n" not in str(e.value)
    monkeypatch.delenv("OFFLINE")
    assert versions(find_python("5.0"))[0] == "transformers==5.0"


def test_without_uv_the_commands_are_those_of_venv_and_pip(cache, monkeypatch):
    commands = []

    def record(command, wanted, on_progress):
        commands.append(command)
        if command[2] == "venv":
            venv.create(command[-1], symlinks=True)

    monkeypatch.setattr(export_environment.shutil, "which", lambda _: None)
    monkeypatch.setattr(export_environment, "_run", record)
    folder = find_python("5.0").parent.parent
    made, filled = commands
    assert made[:3] == [sys.executable, "-m", "venv"]
    assert (
        Path(filled[0]).parent.parent
        == Path(made[-1])
        == folder.with_name(f"{folder.name}.partial")
    )
    assert filled[1:4] == ["-m", "pip", "install"]
    assert "transformers==5.0" in filled


@pytest.mark.parametrize("wanted", ["", "newest", "5.0 --pre", "5.x"])
def test_what_is_no_version_is_refused(wanted, cache):
    with pytest.raises(OptionError, match="is not a version: give one such"):
        find_python(wanted)
    assert not cache.exists()


def test_a_cache_folder_that_cannot_be_written_is_named(cache):
    cache.parent.parent.mkdir()
    cache.parent.touch()
    with pytest.raises(ExportError, match="set XDG_CACHE_HOME to a writable"):
        find_python("5.0")


@pytest.mark.deep
def test_a_family_is_exported_with_the_version_that_it_wants(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_checkpoint("gemma3_text", tmp_path / "gemma3", noise=0.0)
    with pytest.raises(ExportError, match=r"transformers 5\.0 at most"):
        export_model(str(tmp_path / "gemma3"), tmp_path, "int8")
    exported = export_model(str(tmp_path / "gemma3"), tmp_path, "int8", transformers="5.0")
    assert exported.is_new
