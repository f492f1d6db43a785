"""Folders of exported models: hidden until they are complete, and with their origin.

Different models may have folders of the same name.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from ov_specdec.errors import ExportError
from ov_specdec.models.locate import embedded_folder
from ov_specdec.records.files import expand_home

ORIGIN_FILE = "exported_from.txt"

RANDOM = "?" * 8
"""The suffix that `tempfile` appends to make a name unique."""


@contextmanager
def partial_folder(output: Path, name: str) -> Iterator[Path]:
    """A hidden folder in `output` to make `name` in; it is removed at the end.

    Also removes folders that killed processes left for the same `name`. A lock, which the system
    releases at the end of its process, protects folders in use. Raises `ExportError` if `output`
    cannot be written, and if another process is making `name`.
    """
    file = output / f".{name}.lock"
    lock = FileLock(file)
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ExportError(
            f"another process is making {output / name}: wait until it ends, or choose another "
            "--output"
        ) from error
    except OSError as error:
        raise ExportError(f"--output '{output}' cannot be written ({error.strerror})") from error
    try:
        if (output / name).exists():
            raise ExportError(f"another process has just made {output / name}: run this again")
        for left in output.glob(f".{escape(name)}.{RANDOM}"):
            shutil.rmtree(left, ignore_errors=True)
        with TemporaryDirectory(
            prefix=f".{name}.", dir=output, ignore_cleanup_errors=True
        ) as partial:
            yield Path(partial)
    finally:
        # Removed while held, since afterwards it may belong to another process. Windows cannot
        # remove open files; there the release does it.
        with suppress(OSError):
            file.unlink()
        lock.release()


def write_origin(folder: Path, model: str | Path) -> None:
    """Write the origin to a folder: the model's folder or Hub name."""
    (folder / ORIGIN_FILE).write_text(f"{_origin(model)}\n", encoding="utf-8")


def require_origin(folder: Path, model: str | Path) -> None:
    """Raise `ExportError` for a folder that was made from another model.

    A folder without an origin, such as one of other tools, is accepted.
    """
    file = folder / ORIGIN_FILE
    if not file.is_file():
        return
    found, wanted = file.read_text(encoding="utf-8", errors="replace").strip(), _origin(model)
    if found != wanted:
        raise ExportError(
            f"{folder} was made from {found}, not from {wanted}: choose another --output, or "
            "remove it"
        )


def _origin(model: str | Path) -> str:
    folder = expand_home(model)
    if not folder.is_dir():
        return str(model)
    for role in ("main", "draft"):  # their paths change with the installation
        if folder.resolve() == embedded_folder(role).resolve():
            return f"the embedded {role}"
    return str(folder.resolve())
