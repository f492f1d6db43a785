"""`python -m tests.support.kept [FAMILY...]`: makes the models of tests/data anew, and compares.

Each with the version of transformers that Optimum exports it with, as `ov-specdec export
--transformers` does it. The exit code is 1 where a file differs.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from ov_specdec.models.optimum import python_with
from tests.support import tiny_hybrid, tiny_windows

ROOT = Path(__file__).parents[2]
COMPARED = ("expected.json", "main/openvino_model.bin", "draft/openvino_model.bin")
"""Files of a model; of a hybrid no draft is kept."""


def main() -> int:
    """Compare all families, or those that the command line names; the exit code."""
    changed = 0
    for module in (tiny_hybrid, tiny_windows):
        for family, wanted in module.VERSIONS.items():
            if family in (sys.argv[1:] or module.VERSIONS):
                different = compare(module.__name__, family, wanted, module.FOLDER / family)
                changed += len(different)
                print(family, wanted, *different or ["same"], flush=True)  # noqa: T201
    return 1 if changed else 0


def compare(module: str, family: str, wanted: str, kept: Path) -> list[str]:
    """Files that come out otherwise than they are kept."""
    is_installed = version("transformers").startswith(f"{wanted}.")
    python = python_with(None if is_installed else f"{wanted}.*")
    with tempfile.TemporaryDirectory() as made:
        command = [*python, "-m", module, made, family]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=600)
        return [
            file
            for file in COMPARED
            if (kept / file).exists()
            and (kept / file).read_bytes() != (Path(made) / family / file).read_bytes()
        ]


if __name__ == "__main__":
    sys.exit(main())
