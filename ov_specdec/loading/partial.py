"""A hidden folder for unfinished models, so that no process loads an incomplete one."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ov_specdec.errors import ExportError

RANDOM = r"[a-z0-9_]{8}"
"""The suffix that `tempfile` appends to make a name unique."""


@contextmanager
def partial_folder(output: Path, name: str) -> Iterator[Path]:
    """A hidden folder in `output` to make `name` in; it is removed at the end.

    Also removes folders that killed processes left for the same `name`. A lock, which the system
    releases at the end of its process, protects folders in use. Raises `ExportError` if `output`
    cannot be written, and if another process is making `name`.
    """
    with _lock(output, name):
        if (output / name).exists():
            raise ExportError(f"another process has just made {output / name}: run this again")
        _remove_stale(output, name)
        with _writing(output):
            partial = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=output))
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _lock(output: Path, name: str) -> Iterator[None]:
    file = output / f".{name}.lock"
    lock = FileLock(file)
    with _writing(output):
        output.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise ExportError(
                f"another process is making {output / name}: wait until it ends, or choose another "
                "--output"
            ) from error
    try:
        yield
    finally:
        # Removed while held, since afterwards it may belong to another process. Windows cannot
        # remove open files; there the release does it.
        with suppress(OSError):
            file.unlink()
        lock.release()


def _remove_stale(output: Path, name: str) -> None:
    stale = re.compile(rf"\.{re.escape(name)}\.{RANDOM}")
    for path in output.iterdir():
        if stale.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _writing(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ExportError(f"--output '{output}' cannot be written ({error.strerror})") from error
