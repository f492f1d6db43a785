"""Files: JSON of model folders, the user's cache folder, and replacement at once."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ov_specdec.errors import ModelError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `ModelError` if it is missing or broken."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{path} is missing: export the model again") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): check the file") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON ({error}): export the model again") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object: export the model again")
    return content


def user_cache() -> Path | None:
    """The project's part of the user's cache folder; None for a user without one."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if not cache:
        try:
            cache = str(Path.home() / ".cache")
        except RuntimeError:  # no home, as in some containers
            return None
    return Path(cache) / "ov-specdec"


def expand_home(path: str | Path) -> Path:
    """A path with ~ expanded; unchanged if there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which then replaces `path` atomically.

    Readers thus find the old or the new file, the last of several writers wins, and an error leaves
    the old file. Makes folders as needed. Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A folder, because a temporary file would not have the usual permissions.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        partial = Path(folder) / path.name
        yield partial
        partial.replace(path)
