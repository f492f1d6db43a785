"""Optimum's export, in a process of its own which prints what it does; its int4 options."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from ov_specdec.errors import ExportError, Option, install
from ov_specdec.options.model import Options, option


def python_with(transformers: str | None) -> list[str]:
    """The command of a Python with this version of transformers; None: the installed one.

    uv lays that version over this environment, whose other packages stay visible and unchanged, and
    keeps it in its own cache.
    """
    if transformers is None:
        return [sys.executable]
    require("uv")
    pinned = f"--with=transformers=={transformers}", f"--with=numpy=={version('numpy')}"
    uv = [sys.executable, "-m", "uv", "run", "--no-project", f"--python={sys.executable}"]
    return [*uv, *pinned, "python"]


def run_optimum(
    name: str, family: str, target: Path, options: Sequence[str], transformers: str | None = None
) -> None:
    """Export a model to a folder. Raises `ExportError` if Optimum fails, after what it prints."""
    script = Path(__file__).with_name("optimum_process.py")
    command = [*python_with(transformers), str(script), family, "export", "openvino"]
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


def require(*modules: str) -> None:
    """Raise `ExportError` if one of these is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ExportError(f"{module} is not installed: {install('export')}")


class Int4Options(Options):
    """Optimum's options for int4 weights; Optimum has defaults for others."""

    group_size: int | None = option(
        None,
        "int4: weights that share a scale; -1: a whole row.",
        ge=-1,
        unset="Optimum decides, and adjusts it",
        expects="at least 1, or -1 for one group to a row",
        group="Weights",
    )
    ratio: float | None = option(
        None,
        "int4: fraction of layers in int4, the others in int8.",
        gt=0,
        le=1,
        unset="Optimum decides",
        metavar="R",
    )
    sym: bool = option(False, "int4: omit zero points.", unset="Optimum decides")

    def arguments(self) -> list[str]:
        """The given options, as command-line arguments."""
        given = {"--group-size": self.group_size, "--ratio": self.ratio}
        pairs = [(name, str(value)) for name, value in given.items() if value is not None]
        return [*chain(*pairs), *["--sym"] * self.sym]

    def suffix(self) -> str:
        """The given options, as a suffix of a folder's name."""
        return "".join(f"-{argument.removeprefix('--')}" for argument in self.arguments())
