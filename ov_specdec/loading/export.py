"""Export of a checkpoint to OpenVINO IR, by Optimum's own command."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ov_specdec.errors import ExportError
from ov_specdec.loading.locate import HUB_NAME, IR_FILE

WEIGHT_FORMATS = ("fp16", "int8", "int4")
NEEDED_FILES = (IR_FILE, "openvino_model.bin", "config.json", "tokenizer.json")

# What the output of a failed export gives away, and what to do about it; the first match counts.
FAILURES = (
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
    (r"MemoryError|Cannot allocate memory", "memory ran out: close other programs"),
)
KILLED = -9


@dataclass(frozen=True)
class Exported:
    """A finished export, and whether this call made it."""

    folder: Path
    is_new: bool


def export_model(
    name: str, output: Path, weight_format: str, *, trust_remote_code: bool = False
) -> Exported:
    """Export a Hub model or a local checkpoint into a folder of its own below `output`.

    The IR is written beside its final place and moved there when it is complete, so that an
    export that was cut short is never taken for finished. A finished one is left as it is.
    Raises `ExportError`.
    """
    folder = output / f"{Path(name).resolve().name if Path(name).is_dir() else Path(name).name}"
    folder = folder.with_name(f"{folder.name}-{weight_format}")
    if folder.exists():
        require_complete(folder, f"remove {folder} and export again")
        return Exported(folder, is_new=False)
    _check_source(name)
    check_optimum()
    with partial_folder(output, folder.name) as partial:
        _run_optimum(name, partial / folder.name, weight_format, trust_remote_code)
        require_complete(partial / folder.name, "the model may have no fast tokenizer")
        (partial / folder.name).rename(folder)
    return Exported(folder, is_new=True)


@contextmanager
def partial_folder(output: Path, name: str) -> Iterator[Path]:
    """A hidden folder in `output` to make `name` in; whatever is left in it at the end is removed.

    Raises `ExportError` if `output` cannot be written.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=output))
    except OSError as error:
        raise ExportError(f"--output '{output}' cannot be written ({error.strerror})") from error
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_source(name: str) -> None:
    source = Path(name)
    if source.is_dir():
        if not (source / "config.json").is_file():
            raise ExportError(f"'{name}' holds no config.json: give the folder of a checkpoint")
    elif source.exists() or not HUB_NAME.fullmatch(name):
        raise ExportError(f"'{name}' is neither a folder nor a Hub name such as owner/model")


def check_optimum() -> None:
    """Raise `ExportError` if Optimum is not installed."""
    if importlib.util.find_spec("optimum") is None or not importlib.util.find_spec("optimum.intel"):
        raise ExportError("Optimum Intel is not installed: pip install 'ov-specdec[export]'")


def require_complete(folder: Path, remedy: str) -> None:
    """Raise `ExportError`, with the remedy, for a folder that lacks a part of a model."""
    missing = [file for file in NEEDED_FILES if not (folder / file).is_file()]
    if missing:
        raise ExportError(f"'{folder.name}' has no {missing[0]}, so it is not usable: {remedy}")


def _run_optimum(name: str, target: Path, weight_format: str, trust_remote_code: bool) -> None:
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino"]
    command += ["--model", name, "--task", "text-generation-with-past"]
    command += ["--weight-format", weight_format]
    command += ["--trust-remote-code"] if trust_remote_code else []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        status = subprocess.run([*command, str(target)], stdout=log, stderr=log).returncode  # noqa: S603
        log.seek(0)
        if status:
            raise ExportError(f"{name}: {_explain(log.read(), status, name, target.parent)}")


def _explain(log: str, status: int, name: str, place: Path) -> str:
    """What went wrong in a failed export, with the remedy, from what Optimum printed."""
    for pattern, remedy in FAILURES:
        if re.search(pattern, log):
            free = f"{shutil.disk_usage(place).free / 1e9:.1f} GB"
            return remedy.format(name=name, free=free)
    if status == KILLED:
        return "the export was killed, most likely because memory ran out: close other programs"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit status {status}"
    return f"optimum-cli failed ({last}): run it by hand for its whole output"
