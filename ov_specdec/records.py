"""Records of measurements: JSON files in the user's cache folder, with a section for each kind."""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ov_specdec.files import replacing, user_cache

T = TypeVar("T")

VERSION = 1

UNREADABLE = (
    *(ValueError, OverflowError, RecursionError),  # no JSON, numbers too large, too many brackets
    *(KeyError, TypeError, AttributeError),
)
"""Errors of a file with invalid content."""


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
    sections: dict[str, Any] = content["sections"]
    return sections


def read_section(path: Path | None, section: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
    """Parse a section with `parse`; None if it is missing or invalid, or the record damaged."""
    if path is None:
        return None
    try:
        return parse(read_sections(path)[section])
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


def keep_section(path: Path | None, section: str, content: Mapping[str, Any]) -> None:
    """The same, where there is a path; warns if the folder cannot be written."""
    if path is None:
        return
    try:
        write_section(path, section, content)
    except OSError as error:
        warnings.warn(
            f"what is measured cannot be kept in '{path.parent}' ({error.strerror}), so each "
            "process measures again: set XDG_CACHE_HOME to a writable folder",
            RuntimeWarning,
            stacklevel=1,
        )
