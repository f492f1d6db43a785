"""Model folders that a test changes."""

import json
import shutil
from pathlib import Path
from typing import Any


def change(file: Path, **entries: Any) -> None:
    """Change entries of a JSON file; None takes one away."""
    content = {**json.loads(file.read_text()), **entries}
    file.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def changed(folder: Path, target: Path, **files: dict[str, Any]) -> Path:
    """A copy of a model folder with entries of its JSON files changed, by name without suffix."""
    shutil.copytree(folder, target)
    for name, entries in files.items():
        change(target / f"{name}.json", **entries)
    return target
