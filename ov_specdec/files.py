"""The JSON files of a model folder, and where files of the user's own lie."""

import json
import os
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
    except ValueError as error:
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
