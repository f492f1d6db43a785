"""A checkpoint in the layout of transformers, written part by part."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ov_specdec.errors import ExportError
from ov_specdec.models.locate import IR_FILE
from tests.benchmarks.expansion.weights import Array

INDEX = "model.safetensors.index.json"
# Written anew, or about the IR that the tokenizer lies beside.
NOT_COPIED = {"config.json", "openvino_config.json", IR_FILE, INDEX}


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    parts: Iterable[Mapping[str, Array]],
    beside: Path,
) -> None:
    """Write configuration and weights, and copy tokenizer and generation settings from `beside`.

    Each part becomes a file, so that only one part is in memory at a time. Raises `ExportError` if
    the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    places: dict[str, str] = {}
    size = 0
    try:
        folder.mkdir()
        for number, part in enumerate(parts):
            file = f"model-{number:05d}.safetensors"
            save_file(
                {name: np.ascontiguousarray(tensor) for name, tensor in part.items()},
                folder / file,
                metadata={"format": "pt"},
            )
            places.update(dict.fromkeys(part, file))
            size += sum(tensor.nbytes for tensor in part.values())
        _write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": places})
        _write_json(folder / "config.json", config)
        for path in (*beside.glob("*.json"), *beside.glob("*.jinja")):
            if path.name not in NOT_COPIED:
                shutil.copy(path, folder)
    except (OSError, SafetensorError) as error:
        free = f"{shutil.disk_usage(folder.parent).free / 1e9:.1f} GB"
        raise ExportError(
            f"the checkpoint of {folder.name} cannot be written ({error}): free some space "
            f"({free} are left), or choose another --output"
        ) from error


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
