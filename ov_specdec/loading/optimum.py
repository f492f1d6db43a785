"""Runs Optimum's export in a separate process, and explains its failures."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ov_specdec.errors import ExportError, TransformersVersionError, install

# Patterns in the output of a failed export, with messages; the first match counts. A message may
# quote the pattern's groups.
FAILURES = (
    (
        r"(?s)group-wise quantization with group size value (-?\d+).*?channel size: (\d+)",
        "int4 in groups of {0} does not fit a layer of width {1}: choose a --group-size that "
        "divides it, or -1 for one group to a row",
    ),
    (
        r"GatedRepoError|gated repo|is restricted",
        "the model is gated: accept its licence on https://huggingface.co/{name}, then log in with "
        "`hf auth login` or set HF_TOKEN",
    ),
    (
        r"RepositoryNotFoundError|is not a valid model identifier|Invalid username or password",
        "there is no such model on the Hub, or it is private: check the name; for a private model "
        "log in with `hf auth login` or set HF_TOKEN",
    ),
    (
        r"No space left on device",
        "the disk is full: free some space ({free} are left), choose another --output, or move the "
        "download cache with HF_HOME",
    ),
    (
        r"couldn't connect|LocalEntryNotFoundError|OfflineModeIsEnabled|ConnectionError"
        r"|ConnectError|Max retries exceeded|ProxyError|Connection refused|Network is unreachable"
        r"|Name or service not known|name resolution|ConnectTimeout|ReadTimeout",
        "the Hub cannot be reached: check the network, or give a local folder",
    ),
    (
        r"trust_remote_code|trust-remote-code",
        "the model brings its own code: read it, then add --trust-remote-code",
    ),
    (
        r"export a (\S+) model, that is a custom or unsupported architecture",
        "Optimum has no export for the family '{0}': use an IR that was exported elsewhere, which "
        "can be loaded as it is, or a model of another family",
    ),
    (
        r"model type `(\S+)` but Transformers does not recognize",
        "this version of transformers does not know the family '{0}': add --transformers with a "
        "later one; where Optimum takes none, use an IR that was exported elsewhere",
    ),
    (r"MemoryError|Cannot allocate memory", "memory ran out: close other programs"),
)
WANTED_VERSION = re.compile(r"(Maximum|Minimum) required is (\S+), got: (\S+)")
"""Optimum's message about an unsupported version of transformers."""

KILLED = -9

CHILD = Path(__file__).with_name("child.py")
"""Run as a file: with -m, Python would import from the current folder."""


def check_optimum() -> None:
    """Raise `ExportError` if Optimum is not installed."""
    if importlib.util.find_spec("optimum") is None or not importlib.util.find_spec("optimum.intel"):
        raise ExportError(f"Optimum Intel is not installed: {install('export')}")


def run_optimum(name: str, target: Path, options: Sequence[str], python: str | Path) -> None:
    """Export a model to a folder; `ExportError` names the cause and the remedy."""
    command = ["optimum.commands.optimum_cli", "export", "openvino"]
    command += ["--model", name, *options, str(target)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        status = run_child(command, log, target.parent, python)
        log.seek(0)
        output = log.read()
    if not status:
        return
    if found := WANTED_VERSION.search(output):
        raise TransformersVersionError(name, *found.groups())
    raise ExportError(f"{name}: {_explain(output, status, name, target.parent)}")


def run_child(
    command: Sequence[str], log: IO[str], temporary: Path, python: str | Path = sys.executable
) -> int:
    """Run a module with arguments in a process that ends with this one. Returns its exit status.

    Its output goes to `log`, its temporary files to `temporary`, since a killed process removes
    none.
    """
    with subprocess.Popen(  # noqa: S603
        [str(python), str(CHILD), *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**os.environ, "TMPDIR": str(temporary.resolve())},
    ) as process:
        try:
            return process.wait()
        finally:
            process.kill()  # after an interruption; no effect on an ended one
            process.wait()


def _explain(log: str, status: int, name: str, place: Path) -> str:
    """The message for a failed export, with a remedy, from Optimum's output."""
    if known := known_failure(log, name, place):
        return known
    if status == KILLED:
        return "the export was killed, probably because memory ran out: close other programs"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit status {status}"
    return f"optimum-cli failed ({last}): run it by hand for its whole output"


def known_failure(text: str, name: str, place: Path) -> str | None:
    """The remedy for a failure that is known by its text. place: a folder on the disk to fill."""
    for pattern, remedy in FAILURES:
        if match := re.search(pattern, text):
            free = f"{shutil.disk_usage(place).free / 1e9:.1f} GB"
            return remedy.format(*match.groups(), name=name, free=free)
    return None
