"""Figures, with what and where they were measured: a JSON file that tables are made from."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lab.benchmarks.kernels import PRELOAD
from ov_specdec.errors import OptionError
from ov_specdec.files import UNREADABLE, replacing
from ov_specdec.models.devices import find_device, usable_cores
from ov_specdec.models.folder import ModelFolder

PACKAGES = ("openvino", "openvino-genai", "transformers", "numpy", "torch")
INSTRUCTIONS = ("avx2", "avx512", "avx_vnni", "amx", "asimd", "sve", "i8mm", "bf16")
"""How the names of instructions that matrices are multiplied with begin."""

LIMIT = "ONEDNN_MAX_CPU_ISA"
"""The variable that takes some of them away from OpenVINO."""

CPUINFO = Path("/proc/cpuinfo")
FLAGS = ("flags", "features")
"""What Linux calls the list of a processor's instructions: on x86, and on Arm."""

MEASURED = (":/ov_specdec", ":/models", ":/lab/benchmarks", ":(exclude,top)*.md")
"""What a measurement depends on: figures stay those of a commit when pages are committed."""

Row = dict[str, Any]
Key = Mapping[str, str | int | float | None]


@dataclass
class Record:
    """Figures in rows.

    options: all that say what is measured, not how long. models: by role, name and hash. code: by
    part of the figures, the commit, whether the files in it were as committed, and the date.
    """

    options: dict[str, Any]
    models: dict[str, dict[str, str]]
    versions: dict[str, str | None]
    machine: dict[str, Any]
    code: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def begin(cls, options: Mapping[str, Any], folders: Mapping[str, Path]) -> "Record":
        """A record without rows, of this machine."""
        return cls(
            dict(options),
            {role: _model(path) for role, path in folders.items()},
            {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
            _machine(),
        )

    @classmethod
    def read(cls, file: Path) -> "Record":
        """The record in a file; `OptionError` for anything else."""
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, *UNREADABLE) as error:
            raise OptionError(
                f"'{file}' is no record ({error}): name a file that `figures` wrote"
            ) from error

    def require_same(
        self,
        kept: "Record",
        file: Path,
        names: Sequence[str] = ("options", "models", "versions", "machine"),
        remedy: str = "name another file",
    ) -> None:
        """`OptionError` where this was made with something else than a kept one.

        Rows could not be compared. What only one of them knows, such as a model, is left out.
        """
        for name in names:
            before, now = getattr(kept, name), getattr(self, name)
            if changed := [key for key in before if key in now and before[key] != now[key]]:
                key = changed[0]
                raise OptionError(
                    f"'{file}' was made with other {name}: {key} was {before[key]} and is "
                    f"{now[key]}; {remedy}"
                )

    def write(self, file: Path) -> None:
        """Write the record, a line for each row, in the place of what was there."""
        rows = ",\n".join(json.dumps(row) for row in self.rows)
        head = {name: value for name, value in vars(self).items() if name != "rows"}
        text = f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{rows}\n]}}\n'
        with replacing(file) as partial:
            partial.write_text(text, encoding="utf-8")

    def has(self, key: Key) -> bool:
        """Whether there is a row with these values."""
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)


def select(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def _model(path: Path) -> dict[str, str]:
    return {"name": path.name, "digest": ModelFolder.read(path).digest()}


def current_code() -> dict[str, Any]:
    """The last commit of what runs; without one, as of a source archive, None."""
    git, here = shutil.which("git"), Path(__file__).parent

    def output(*arguments: str) -> str | None:
        if git is None:
            return None
        done = subprocess.run([git, *arguments], cwd=here, capture_output=True, text=True)
        return None if done.returncode else done.stdout.strip()

    changes = output("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
    return {"commit": output("rev-list", "-1", "HEAD", "--", *MEASURED), "clean": changes == ""}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _machine() -> dict[str, Any]:
    limit = os.environ.get(LIMIT)
    if limit and PRELOAD in os.environ:
        limit += " with OpenVINO's own kernels for AVX2"
    return {
        "name": find_device("CPU").full_name.strip(),
        "architecture": platform.machine(),
        "instructions": instructions(CPUINFO),
        LIMIT: limit,
        "cores": usable_cores(),
        "system": platform.system(),
    }


def instructions(file: Path) -> list[str] | None:
    """Those of Linux's list that matter; None on another system."""
    if not file.exists():
        return None
    lines = (line.partition(":") for line in file.read_text().splitlines())
    flags = next((after.split() for name, _, after in lines if name.strip().lower() in FLAGS), [])
    return sorted(flag for flag in flags if flag.startswith(INSTRUCTIONS))
