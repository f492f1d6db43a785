"""User settings for compiling a model: device, KV backend, precision, properties."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from ov_specdec.checks import require_choice, require_int, require_text, require_texts
from ov_specdec.errors import Option, OptionError
from ov_specdec.files import expand_home
from ov_specdec.loading.devices import (
    Device,
    Precision,
    cache_precision,
    causal_keys,
    precision_properties,
)
from ov_specdec.loading.static_shapes import WantedShapes

Backend = Literal["paged", "stateful"]
KvBackend = Literal["auto", "paged", "stateful"]


@dataclass(frozen=True)
class RuntimeConfig:
    """Settings for compiling a model: OpenVINO device, KV backend, precision, extra properties.

    max_hidden_tokens: see `StatefulModel`; None takes its default. num_threads: CPU threads of the
    model; None: OpenVINO's default. cache_dir: folder that caches compiled models, with a folder
    for each device and set of properties; None: no cache. encoder_device: of the encoder of an
    encoder-decoder model; None: that of the decoder. static_shapes: see `WantedShapes`.
    batch_invariant: run passes of a paged model in the batch-invariant form. shares_passes: several
    sequences may share passes. max_model_len: maximum tokens of a sequence; None: the model's
    context.
    """

    device: str = "CPU"
    kv: KvBackend = "auto"
    precision: Precision = "default"
    properties: Mapping[str, str] | None = None
    max_hidden_tokens: int | None = None
    num_threads: int | None = None
    cache_dir: str | Path | None = None
    encoder_device: str | None = None
    static_shapes: WantedShapes = "none"
    batch_invariant: bool = False
    shares_passes: bool = True
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        require_text("device", self.device)
        object.__setattr__(self, "device", self.device.upper())
        if self.encoder_device is not None:
            require_text("encoder_device", self.encoder_device)
            object.__setattr__(self, "encoder_device", self.encoder_device.upper())
        if self.properties is not None:
            require_texts("properties", self.properties)
        require_choice("kv", self.kv, get_args(KvBackend))
        require_choice("precision", self.precision, get_args(Precision))
        if self.max_hidden_tokens is not None:
            require_int("max_hidden_tokens", self.max_hidden_tokens, low=0)
            if self.kv == "paged":
                raise OptionError(
                    Option("max_hidden_tokens", self.max_hidden_tokens),
                    " has no effect with ",
                    Option("kv", "paged"),
                    ": leave out one of the two",
                )
        if self.num_threads is not None:
            require_int("num_threads", self.num_threads, low=1)
        if self.max_model_len is not None:
            require_int("max_model_len", self.max_model_len, low=2)
        if self.cache_dir is not None:
            if not isinstance(self.cache_dir, str | Path):
                raise OptionError(Option("cache_dir", self.cache_dir), " must be a folder")
            if expand_home(self.cache_dir).is_file():
                raise OptionError(
                    Option("cache_dir", str(self.cache_dir)), " is a file: give a folder"
                )

    def properties_for(self, device: Device) -> dict[str, str]:
        """OpenVINO properties; given ones replace those of other settings.

        Raises `DeviceError` for settings that the device does not support.
        """
        given = self.properties or {}
        precision = self.precision
        is_accurate = given.get("EXECUTION_MODE_HINT") == "ACCURACY"
        if is_accurate and precision == "default" and not device.is_cpu:  # the CPU needs no help
            precision = "f32"
        properties = {**causal_keys(device), **precision_properties(device, precision)}
        if self.num_threads is not None and device.is_cpu:
            properties["INFERENCE_NUM_THREADS"] = str(self.num_threads)
        if self.cache_dir is not None:
            properties["CACHE_DIR"] = str(expand_home(self.cache_dir))
        properties |= given
        properties |= cache_precision(device, properties)
        if folder := properties.pop("CACHE_DIR", ""):
            # A GPU's plugin would load models that were compiled with other properties.
            digest = hashlib.sha256(repr((device.name, sorted(properties.items()))).encode())
            properties["CACHE_DIR"] = str(Path(folder) / digest.hexdigest()[:16])
        return properties

    def for_draft(
        self, device: str | None, properties: Mapping[str, str] | None
    ) -> "RuntimeConfig":
        """The same for a draft model, with its device, and its properties over the common ones."""
        return replace(
            self,
            device=self.device if device is None else device,
            properties={**(self.properties or {}), **(properties or {})},
            batch_invariant=False,
            max_model_len=None,
            static_shapes="none" if self.static_shapes == "none" else "auto",
        )
