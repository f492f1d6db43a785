"""What the configuration files of an exported model say about it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ov_specdec.errors import ModelError
from ov_specdec.locate import IR_FILE

CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
DEFAULT_CONTEXT = 4096
"""For models that state no context length, such as those with ALiBi positions."""


@dataclass(frozen=True)
class ModelFolder:
    """An exported model on disk.

    context_length: tokens that the model was made for, prompt and output together.
    sliding_window: tokens that a layer attends to, where that is fewer than the context.
    eos_token_ids: tokens that end a text.
    """

    path: Path
    context_length: int
    sliding_window: int | None
    eos_token_ids: frozenset[int]

    @property
    def ir(self) -> Path:
        """The IR's XML file."""
        return self.path / IR_FILE

    @classmethod
    def read(cls, path: Path) -> "ModelFolder":
        """Read config.json and generation_config.json."""
        config = read_json(path / "config.json")
        # Multimodal checkpoints keep the language model's settings one level down.
        config = {**config, **config.get("text_config", {})}
        generation = path / "generation_config.json"
        defaults = read_json(generation) if generation.is_file() else {}
        eos = defaults.get("eos_token_id", config.get("eos_token_id"))
        context = next((config[key] for key in CONTEXT_KEYS if config.get(key)), DEFAULT_CONTEXT)
        return cls(path, context, _sliding_window(config, context), as_token_ids(eos))


def as_token_ids(value: int | list[int] | None) -> frozenset[int]:
    """The set of ids that a configuration writes as nothing, one id or a list."""
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `ModelError` if it is missing or broken."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{path} is missing: export the model again") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON ({error}): export the model again") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object: export the model again")
    return content


def _sliding_window(config: dict[str, Any], context: int) -> int | None:
    window = config.get("sliding_window")
    if not window or window >= context or config.get("use_sliding_window") is False:
        return None
    return int(window)
