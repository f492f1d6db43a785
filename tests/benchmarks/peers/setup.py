"""What all methods of one measurement share: models, device, properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ov_specdec.models.runtime_config import WantedShapes


@dataclass(frozen=True)
class Setup:
    """The models and how they are compiled. All of it is plain data, for it travels as JSON.

    main, draft: folders of exported models; draft is empty where no draft model takes part.
    properties: OpenVINO's, for all models and programs. scratch: a folder for what openvino.genai
    wants converted. static_shapes, is_prepared: of this project's own methods. gguf: the main
    model's file for llama.cpp. max_batch_size: requests at once. kv_cache_gb: memory for kept
    prefixes, of those programs that keep them; None: prompts are read anew.
    """

    main: str
    draft: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    scratch: str = ""
    static_shapes: WantedShapes = "auto"
    is_prepared: bool = True
    gguf: str = ""
    max_batch_size: int = 1
    kv_cache_gb: float | None = None

    def pipeline_arguments(self) -> dict[str, Any]:
        """Keyword arguments for a `SpeculativePipeline` with its default drafter."""
        return {
            "main": self.main,
            "draft": self.draft or None,
            "max_batch_size": self.max_batch_size,
            "properties": dict(self.properties),
            "profile": "none",  # all methods run with the settings that were asked for
            "static_shapes": self.static_shapes,
            "kv_cache_size": self.kv_cache_gb,
        }
