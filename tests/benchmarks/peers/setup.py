"""What all methods of one benchmark share: models, device, properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ov_specdec.loading.devices import Precision, find_device, openvino_core, precision_properties
from ov_specdec.loading.runtime_config import KvBackend
from ov_specdec.loading.static_shapes import StaticShapes
from ov_specdec.text.pairing import PairingName


@dataclass(frozen=True)
class Setup:
    """The models and how they are compiled. All of it is plain data, for it travels as JSON.

    main, draft: folders of exported models. properties: OpenVINO properties for both models, on
    top of those that `precision` stands for; with a profile, those of the main. draft_properties:
    with a profile, those of the draft. profile: its file. scratch: a folder for what another
    framework wants converted. static_shapes: of this project's own methods, where the KV cache is
    paged. max_batch_size, max_prefill_tokens_per_step: of these too; None for the default. pairing:
    how the draft model drafts for a main model with another tokenizer; None where both have the
    same.
    """

    main: str
    draft: str
    device: str = "CPU"
    precision: Precision = "default"
    properties: Mapping[str, str] = field(default_factory=dict)
    draft_properties: Mapping[str, str] | None = None
    profile: str | None = None
    scratch: str = ""
    static_shapes: StaticShapes = "auto"
    max_batch_size: int = 1
    max_prefill_tokens_per_step: int | None = None
    pairing: PairingName | None = None

    def with_defaults(self) -> "Setup":
        """The same models with OpenVINO's own defaults: no precision, properties or profile."""
        return replace(
            self, precision="default", properties={}, draft_properties=None, profile=None
        )

    def all_properties(self, role: Literal["main", "draft"] = "main") -> dict[str, str]:
        """Every OpenVINO property of a model: what `precision` stands for, and its own."""
        device = find_device(openvino_core(), self.device)
        own = self.draft_properties if role == "draft" else self.properties
        chosen = self.properties if own is None else own
        return {**precision_properties(device, self.precision), **chosen}

    def pipeline_arguments(self, kv: KvBackend, *, drafts: bool) -> dict[str, Any]:
        """Keyword arguments for a `SpeculativePipeline`, with or without the draft model."""
        arguments: dict[str, Any] = {"main": self.main, "device": self.device, "kv": kv}
        if kv != "stateful":
            arguments["static_shapes"] = self.static_shapes
        arguments["max_prefill_tokens_per_step"] = self.max_prefill_tokens_per_step
        arguments["max_batch_size"] = self.max_batch_size
        if drafts:
            arguments |= {"draft": self.draft, "pairing": self.pairing}
        if drafts and self.profile is not None and kv == "auto":
            return {**arguments, "profile": self.profile}
        if drafts and self.draft_properties:
            arguments["draft_properties"] = dict(self.draft_properties)
        return {
            **arguments,
            "precision": self.precision,
            "properties": dict(self.properties),
            "profile": "none",  # all methods run with the settings that were asked for
        }
