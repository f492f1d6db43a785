"""What all methods of one benchmark share: models, device, properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ov_specdec.loading.devices import Precision, find_device, openvino_core, precision_properties
from ov_specdec.loading.runtime_config import KvBackend
from ov_specdec.loading.static_shapes import WantedShapes
from ov_specdec.text.pairing import PairingName


@dataclass(frozen=True)
class Setup:
    """The models and how they are compiled. All of it is plain data, for it travels as JSON.

    main, draft: folders of exported models; draft is empty where no draft model takes part.
    properties: OpenVINO properties for both, on top of those that `precision` stands for. scratch:
    a folder for what another framework wants converted. static_shapes, max_batch_size: of this
    project's own methods. gguf: the main model's file for llama.cpp. pairing: how the draft model
    drafts for a main model with another tokenizer; None where both have the same.
    """

    main: str
    draft: str = ""
    device: str = "CPU"
    precision: Precision = "default"
    properties: Mapping[str, str] = field(default_factory=dict)
    scratch: str = ""
    static_shapes: WantedShapes = "auto"
    max_batch_size: int = 1
    gguf: str = ""
    pairing: PairingName | None = None

    def all_properties(self, _role: Literal["main", "draft"] = "main") -> dict[str, str]:
        """Every OpenVINO property of a model: what `precision` stands for, and its own."""
        device = find_device(openvino_core(), self.device)
        return {**precision_properties(device, self.precision), **self.properties}

    def pipeline_arguments(self, kv: KvBackend, *, drafts: bool) -> dict[str, Any]:
        """Keyword arguments for a `SpeculativePipeline`, with or without the draft model."""
        return {
            "main": self.main,
            "device": self.device,
            "kv": kv,
            "max_batch_size": self.max_batch_size,
            "precision": self.precision,
            "properties": dict(self.properties),
            "profile": "none",  # all methods run with the settings that were asked for
            **({"static_shapes": self.static_shapes} if kv != "stateful" else {}),
            **({"draft": self.draft, "pairing": self.pairing} if drafts else {}),
        }
