"""Records: what was measured of models, in one file for each machine and configuration."""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ov_specdec.records.files import UNREADABLE, replacing, user_cache

T = TypeVar("T")

VERSION = 1


def record_file(*fingerprints: str) -> Path | None:
    """The path of the record of one or several models; None for a user without a cache folder."""
    cache = user_cache()
    digest = hashlib.sha256("\n".join(fingerprints).encode())
    return None if cache is None else cache / "records" / f"{digest.hexdigest()[:16]}.json"


def read_record(path: Path) -> dict[str, Any]:
    """The name and sections of a record. Raises `OSError` or an error of `UNREADABLE`."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if content.pop("version") != VERSION:
        raise ValueError("it has another format")
    if content.pop("checksum", "") != _checksum(content):
        raise ValueError("it was changed")
    return content


def read_section(path: Path | None, section: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
    """Parse a section with `parse`; None if it is missing or invalid, or the record damaged."""
    if path is None:
        return None
    try:
        return parse(_sections(path)[section])
    except (OSError, *UNREADABLE):
        return None


def write_section(path: Path, section: str, content: Mapping[str, Any]) -> None:
    """Write a section; others stay, unless the record is damaged. Raises `OSError`."""
    try:
        sections = {**_sections(path), section: content}
    except (OSError, *UNREADABLE):
        sections = {section: content}
    record = {"name": path.name, "sections": sections}
    sealed = {"version": VERSION, **record, "checksum": _checksum(record)}
    with replacing(path) as partial:
        partial.write_text(json.dumps(sealed, indent=2) + "\n", encoding="utf-8")


def keep_section(path: Path, section: str, content: Mapping[str, Any]) -> None:
    """The same; warns if the folder cannot be written."""
    try:
        write_section(path, section, content)
    except OSError as error:
        warnings.warn(
            f"what is measured cannot be kept in '{path.parent}' ({error.strerror}), so each "
            "process measures again: set XDG_CACHE_HOME to a writable folder",
            RuntimeWarning,
            stacklevel=1,
        )


def _sections(path: Path) -> dict[str, Any]:
    """The sections of a record that was written for this name."""
    record = read_record(path)
    if record["name"] != path.name:
        raise ValueError("it belongs to other models")
    sections: dict[str, Any] = record["sections"]
    return sections


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
