"""Cached sequences in files: what a model has read need not be read again by another process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.errors import OptionError, SessionError
from ov_specdec.files import replacing

TOKENS, FINGERPRINT = "tokens", "fingerprint"
REMEDY = "delete it, and save it again"


def draft_file(file: Path) -> Path:
    """The file of a draft model's cache, beside that of the main model's."""
    return file.with_name(f"{file.stem}.draft{file.suffix}")


def write_sequence(path: Path, sequence: CachedSequence, fingerprint: str) -> None:
    """Write the ids and tensors that a KV cache holds, as safetensors.

    fingerprint: what the tensors depend on; `read_sequence` wants the same. Raises `OptionError`
    for an empty cache, and for a path that cannot be written.
    """
    tokens = sequence.tokens
    if not tokens:
        raise OptionError(f"there is nothing to save in '{path}': generate something first")
    content = {TOKENS: np.array(tokens, np.int64), **sequence.read_kv()}
    try:
        with replacing(path) as partial:
            save_file(content, partial, {FINGERPRINT: fingerprint})
    except (OSError, SafetensorError) as error:
        raise OptionError(f"the cache file '{path}' cannot be written: {error}") from error


def read_sequence(path: Path, sequence: CachedSequence, fingerprint: str) -> None:
    """Have a sequence hold what a file holds.

    Raises `OptionError` for a file that cannot be read, or whose fingerprint is another.
    """
    found, tensors = _read(path)
    if found != fingerprint:
        raise OptionError(
            f"the cache file '{path}' was made with another model, machine, OpenVINO version, KV "
            f"backend or other properties: {REMEDY}"
        )
    try:
        sequence.restore(tensors.pop(TOKENS).tolist(), tensors)
    except (KeyError, SessionError) as error:
        raise OptionError(f"the cache file '{path}' cannot be used ({error}): {REMEDY}") from error


def _read(path: Path) -> tuple[str | None, dict[str, NDArray[Any]]]:
    """A file's fingerprint, if it has one, and its tensors."""
    if not path.is_file():
        raise OptionError(
            f"there is no cache file '{path}': save it with these models, or give another path"
        )
    try:
        with safe_open(path, framework="numpy") as file:  # type: ignore[no-untyped-call]
            metadata: Mapping[str, str] = file.metadata() or {}
            return metadata.get(FINGERPRINT), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise OptionError(f"the cache file '{path}' cannot be read ({error}): {REMEDY}") from error
