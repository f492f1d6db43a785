"""What all methods of one benchmark share: models, device, properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import openvino as ov

from ov_specdec.loading.devices import Precision, find_device, precision_properties


@dataclass(frozen=True)
class Setup:
    """The models and how they are compiled. All of it is plain data, for it travels as JSON.

    main, draft: folders of exported models. main_checkpoint, draft_checkpoint: folders of their
    checkpoints for torch, where there are any. properties: OpenVINO properties for both models, on
    top of those that `precision` stands for. scratch: a folder for what a peer wants converted.
    """

    main: str
    draft: str
    device: str = "CPU"
    precision: Precision = "default"
    properties: Mapping[str, str] = field(default_factory=dict)
    main_checkpoint: str | None = None
    draft_checkpoint: str | None = None
    scratch: str = ""

    def with_defaults(self) -> "Setup":
        """The same models with OpenVINO's own defaults: no precision, no properties."""
        return replace(self, precision="default", properties={})

    def all_properties(self) -> dict[str, str]:
        """Every OpenVINO property: what `precision` stands for, and `properties`."""
        device = find_device(ov.Core(), self.device)
        return {**precision_properties(device, self.precision), **self.properties}

    def pipeline_arguments(self) -> dict[str, Any]:
        """Keyword arguments that every `SpeculativePipeline` of this benchmark gets."""
        return {
            "main": self.main,
            "device": self.device,
            "precision": self.precision,
            "properties": dict(self.properties),
            "profile": "none",  # all methods run with the settings that were asked for
        }


def find_checkpoint(folder: Path) -> str | None:
    """The folder as a checkpoint, if it is one."""
    return str(folder) if (folder / "config.json").is_file() else None
