"""Files: texts and JSON that are read, replacement at once, and records in the user's cache folder.

A record is a JSON file of measurements, with a section for each kind.
"""

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from ov_specdec.errors import ModelError

T = TypeVar("T")

VERSION = 1

ENCODING = "utf-8-sig"
"""Of files that people write: some editors put a byte order mark before the text."""

UNREADABLE = (
    *(ValueError, OverflowError, RecursionError),  # no JSON, numbers too large, too many brackets
    *(KeyError, TypeError, AttributeError),
)
"""Errors of a file with invalid content."""


def read_text(file: str | Path) -> str:
    """The text of a file that people write. Raises `OSError` and `UnicodeDecodeError`."""
    return expand_home(file).read_text(encoding=ENCODING)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `ModelError` if it is missing or broken."""
    try:
        content = json.loads(read_text(path))
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


def record_file(*fingerprints: str) -> Path | None:
    """The path of the record of one or several models; None for a user without a cache folder."""
    cache = user_cache()
    digest = hashlib.sha256("\n".join(fingerprints).encode())
    return None if cache is None else cache / "records" / f"{digest.hexdigest()[:16]}.json"


def read_sections(path: Path) -> dict[str, Any]:
    """The sections of a record. Raises `OSError` or an error of `UNREADABLE`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["version"] != VERSION:
        raise ValueError("it has another format")
    return dict(content["sections"])


def read_section(path: Path | None, section: str, kind: type[T]) -> T | None:
    """A section as a value of a type; None if it is missing, damaged, or without some field."""
    if path is None:
        return None
    adapter = TypeAdapter(kind)
    try:
        content = read_sections(path)[section]
        value = adapter.validate_python(content)
        # What has a default was measured too.
        return value if adapter.dump_python(value, mode="json") == content else None
    except (OSError, *UNREADABLE):
        return None


def write_section(path: Path, section: str, content: Mapping[str, Any]) -> None:
    """Write a section; others stay, unless the record is damaged. Raises `OSError`."""
    try:
        sections = {**read_sections(path), section: content}
    except (OSError, *UNREADABLE):
        sections = {section: content}
    record = {"version": VERSION, "sections": sections}
    with replacing(path) as partial:
        partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def keep_section(path: Path | None, section: str, value: object) -> None:
    """Write what was measured, where there is a path; warns if the folder cannot be written."""
    if path is None:
        return
    try:
        write_section(path, section, TypeAdapter(type(value)).dump_python(value, mode="json"))
    except OSError as error:
        problem = f"what is measured cannot be kept in '{path.parent}' ({error.strerror})"
        remedy = "so each process measures again: set XDG_CACHE_HOME to a writable folder"
        warnings.warn(f"{problem}, {remedy}", RuntimeWarning, stacklevel=1)
