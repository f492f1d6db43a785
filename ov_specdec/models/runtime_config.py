"""How one model is compiled: device, KV backend, precision, properties."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ov_specdec.errors import DeviceError
from ov_specdec.files import expand_home
from ov_specdec.models.devices import EXACT, Device, Precision, cache_precision, computes_in

Backend = Literal["paged", "stateful"]
KvBackend = Literal["auto", "paged", "stateful"]

PROPERTIES = "a mapping of names to values, all of them texts"
"""What properties must be, for messages."""


WantedShapes = Sequence[int] | Literal["auto", "none"]
"""Numbers of tokens in a pass for which a paged main model also gets static shapes.

OpenVINO prepares a dynamic model again for each pass with another number of tokens than the last
one; a static shape needs no preparation, is faster in itself, and takes the memory of the weights
again. "auto": numbers that save most time, for small models. With either, a paged draft model has
some too.
"""

MAX_STATIC_SHAPE = 512


@dataclass(frozen=True)
class RuntimeConfig:
    """How one model of a pipeline is compiled: options of the pipeline, by their names, and more.

    batch_invariant: run passes of a paged model in the batch-invariant form. shares_passes: several
    sequences may share passes. kept_tokens: those whose logits are computed; None: all.
    """

    device: str = "CPU"
    kv: KvBackend = "auto"
    precision: Precision = "default"
    properties: Mapping[str, str] | None = None
    max_masked_tokens: int | None = None
    num_threads: int | None = None
    cache_dir: str | Path | None = None
    encoder_device: str | None = None
    static_shapes: WantedShapes = "none"
    batch_invariant: bool = False
    shares_passes: bool = True
    max_model_len: int | None = None
    kept_tokens: frozenset[int] | None = None

    @property
    def static_sizes(self) -> list[int]:
        """The requested sizes of static shapes."""
        return [] if isinstance(self.static_shapes, str) else list(self.static_shapes)

    def properties_for(self, device: Device) -> dict[str, str]:
        """OpenVINO properties; given ones replace those of other settings.

        Raises `DeviceError` for settings that the device does not support.
        """
        given, precision = self.properties or {}, self.precision
        if precision == "default" and not device.is_cpu:  # the CPU needs no help
            is_accurate = given.get("EXECUTION_MODE_HINT") == "ACCURACY"
            precision = "f16" if computes_in(device, "f16") and not is_accurate else "f32"
        if not computes_in(device, precision):
            raise DeviceError(
                f"precision '{precision}' is not offered by {device.name} here, which lists "
                f"{', '.join(device.capabilities)}: use default, f32 or exact"
            )
        # By channel, the CPU's default, all tokens of a block share a scale, so that a draft token
        # changes the keys of those before it.
        properties = {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"} if device.is_cpu else {}
        if precision != "default":
            properties |= EXACT if precision == "exact" else {"INFERENCE_PRECISION_HINT": precision}
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
