"""Environments for export with another version of transformers than the installed one.

Optimum exports some families only with certain versions. An environment has such a version, and
sees all other packages of its parent environment, which stays unchanged.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib.metadata import requires, version
from pathlib import Path

from filelock import FileLock

from ov_specdec.errors import ExportError, OptionError
from ov_specdec.files import user_cache

SEEN = ("numpy", "openvino", "optimum-intel", "torch")
"""Packages of the parent environment whose versions identify an environment."""

VERSION = re.compile(r"\d+(\.\d+)*(\.\*)?")

Progress = Callable[[str], object]


def find_python(wanted: str, on_progress: Progress = lambda _line: None) -> Path:
    """The Python of an environment with this version of transformers, made if needed.

    on_progress: called with each line of output of uv or pip. Raises `OptionError` for an invalid
    version, `ExportError` if the environment cannot be made.
    """
    if not VERSION.fullmatch(wanted):
        raise OptionError(f"transformers='{wanted}' is not a version: give one such as 5.2.*")
    folder = _folder(wanted)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                partial = folder.with_name(f"{folder.name}.partial")
                shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
                _make(partial, wanted, on_progress)
                partial.rename(folder)
    except OSError as error:
        raise ExportError(
            f"an environment cannot be made in '{folder.parent}' ({error.strerror}): set "
            "XDG_CACHE_HOME to a writable folder"
        ) from error
    return _python(folder)


def _folder(wanted: str) -> Path:
    """The folder of the environment."""
    cache = user_cache()
    if cache is None:
        raise ExportError(
            "an environment for the export needs a folder, and this user has no home: set "
            "XDG_CACHE_HOME to a writable folder"
        )
    parts = [sys.version, sys.prefix, *(f"{name} {version(name)}" for name in SEEN)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
    return cache / "export" / f"transformers-{wanted.replace('*', 'x')}-{digest}"


def _make(folder: Path, wanted: str, on_progress: Progress) -> None:
    """Make an environment that still runs after a move."""
    python, limits = str(_python(folder)), folder / "constraints.txt"
    install = [f"transformers=={wanted}", "--constraint", str(limits)]
    uv = shutil.which("uv")
    if uv is None:
        commands = [
            [sys.executable, "-m", "venv", str(folder)],
            [python, "-m", "pip", "install", "--progress-bar", "off", *install],
        ]
    else:
        commands = [
            [uv, "venv", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--python", python, *install],
        ]
    make, fill = commands
    _run(make, wanted, on_progress)
    limits.write_text("\n".join(_constraints()), encoding="utf-8")
    _run(fill, wanted, on_progress)
    seen = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    _path(folder, "purelib").joinpath("seen.pth").write_text(
        "".join(f"{entry}\n" for entry in seen), encoding="utf-8"
    )


def _constraints() -> list[str]:
    """Version constraints of the visible packages on installed ones."""
    wants = [*(requires("optimum-intel") or ()), *(requires("optimum") or ())]
    fitting = [want for want in wants if "extra ==" not in want and "transformers" not in want]
    return [*fitting, f"numpy=={version('numpy')}"]


def _run(command: Sequence[str], wanted: str, on_progress: Progress) -> None:
    last = ""
    with subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                if stripped := line.strip():
                    last = stripped
                    on_progress(last)
            status = process.wait()
        finally:
            process.kill()  # after an interruption; no effect on an ended one
    if status:
        raise ExportError(
            f"an environment with transformers {wanted} cannot be made ({last}): check the network "
            f"and the version, or see what {' '.join(command)} prints"
        )


def _python(folder: Path) -> Path:
    return _path(folder, "scripts") / ("python.exe" if os.name == "nt" else "python")


def _path(folder: Path, name: str) -> Path:
    """A folder of an environment, as the `venv` module of this Python places it."""
    scheme = "nt" if os.name == "nt" else "posix_prefix"
    places = {"base": str(folder), "platbase": str(folder), "installed_base": str(folder)}
    return Path(sysconfig.get_path(name, scheme, places))
