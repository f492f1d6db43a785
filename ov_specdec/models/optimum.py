"""Runs Optimum's export in a process of its own, which prints what it does."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from ov_specdec.errors import ExportError, Option, install

PROCESS = Path(__file__).with_name("optimum_process.py")


def python_with(transformers: str | None) -> list[str]:
    """The command of a Python with this version of transformers; None: the installed one.

    uv lays that version over this environment, whose other packages stay visible and unchanged, and
    keeps it in its own cache.
    """
    if transformers is None:
        return [sys.executable]
    _require("uv")
    pinned = f"--with=transformers=={transformers}", f"--with=numpy=={version('numpy')}"
    uv = [sys.executable, "-m", "uv", "run", "--no-project", f"--python={sys.executable}"]
    return [*uv, *pinned, "python"]


def run_optimum(
    name: str, family: str, target: Path, options: Sequence[str], transformers: str | None = None
) -> None:
    """Export a model to a folder. Raises `ExportError` if Optimum fails, after what it prints."""
    command = [*python_with(transformers), str(PROCESS), family, "export", "openvino"]
    with subprocess.Popen(  # noqa: S603
        [*command, "--model", name, *options, str(target)],
        stdin=subprocess.PIPE,
        stdout=2,
        # A killed process removes no temporary files.
        env={**os.environ, "TMPDIR": str(target.parent.resolve())},
    ) as process:
        try:
            status = process.wait()
        finally:
            process.kill()  # after an interruption; no effect on an ended one
    if status:
        raise ExportError(
            f"{name}: Optimum failed with exit status {status}, and says why above: where it asks "
            "for another version of transformers, add ",
            Option("transformers", "VERSION"),
            "; for a gated model, log in with hf auth login; for one with its own code, read it, "
            "and add ",
            Option("trust_remote_code", True),
            "; a status of -9 means that memory ran out",
        )


def check_optimum() -> None:
    """Raise `ExportError` if Optimum is not installed."""
    _require("optimum")
    _require("optimum.intel")


def _require(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ExportError(f"{module} is not installed: {install('export')}")
