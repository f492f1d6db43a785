"""What OpenVINO offers on this machine: devices, precisions, and where a paged KV cache runs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import openvino as ov

from ov_specdec.errors import DeviceError, Option, openvino_message

Precision = Literal["default", "exact", "f32", "bf16", "f16"]

PRECISION_PROPERTIES: Mapping[Precision, dict[str, str]] = {
    "default": {},
    # f32 numerics: nothing but weights may be quantized on the way.
    "exact": {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    },
    "f32": {"INFERENCE_PRECISION_HINT": "f32"},
    "bf16": {"INFERENCE_PRECISION_HINT": "bf16"},
    "f16": {"INFERENCE_PRECISION_HINT": "f16"},
}
CAPABILITIES: Mapping[str, str] = {"bf16": "BF16", "f16": "FP16"}
"""What a device must list to compute in a precision; all of them compute in f32."""

COMPRESSED = ("i8", "u8")
"""Precisions of KV caches that have a scale beside them."""

BEST_FIRST = ("GPU", "CPU")
"""Which device "AUTO" is, of those that are there: OpenVINO's own order."""

SPREADING = ("HETERO", "MULTI", "BATCH")
"""Devices of OpenVINO that spread a model, and with it its KV cache, over several."""

OF_TORCH = ("CUDA", "MPS", "XPU", "HIP")
"""Devices that OpenVINO has no name for, or another."""

SEEN = {"CPU": "measured", "GPU": "simulated"}
"""How it was seen that this package works on a kind of device."""

NOT_PAGED = "a paged KV cache has not been run on"
"""Why `kv="auto"` takes the stateful one on a device, whose name follows."""


@dataclass(frozen=True)
class Device:
    """A device as OpenVINO describes it, and what of this package works on it."""

    name: str
    full_name: str
    capabilities: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Its name without its number: CPU, GPU, NPU."""
        return self.name.partition(".")[0]

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU, which has properties of its own, and whose memory is ours."""
        return self.kind == "CPU"

    @property
    def takes_paged(self) -> bool:
        """Whether `kv="auto"` may choose a paged KV cache: where that has been run."""
        return self.kind in SEEN

    @property
    def seen(self) -> str:
        """How it was seen that this package works there: measured, simulated, never run."""
        return SEEN.get(self.kind, "never run")


@cache
def openvino_core() -> ov.Core:
    """The one core of this process, which keeps its plugins loaded.

    OpenVINO's CPU plugin gives the thread that loads it a stack for signals, and frees that with
    the plugin: after a core has ended, the next Ctrl-C would be a segmentation fault.
    """
    return ov.Core()


def list_devices() -> list[Device]:
    """The devices that OpenVINO finds on this machine."""
    core = openvino_core()
    return [find_device(core, name) for name in core.available_devices]


def find_device(core: ov.Core, name: str) -> Device:
    """The device called `name`: one that is listed, "GPU.0" for "GPU", or the best for "AUTO".

    Small letters are as good. Raises `DeviceError` if there is no such device here, or none that
    can hold a KV cache.
    """
    name = name.upper()
    kind, _, wanted = name.partition(":")
    if kind in SPREADING:
        raise DeviceError(
            f"device '{name}' spreads a model over devices, and a KV cache has to be on one: name "
            "one of them, or AUTO"
        )
    available = core.available_devices
    if kind == "AUTO":
        names = wanted.split(",") if wanted else BEST_FIRST
        name = next((own for own in names if _is_among(own, available)), name)
    if name not in available and f"{name}.0" in available:
        name = f"{name}.0"
    if name not in available:
        hint = " (an Intel GPU is GPU)" if kind in OF_TORCH else ""
        raise DeviceError(
            f"device '{name}' is not available: OpenVINO finds {', '.join(available)} here{hint}"
        )
    full_name = core.get_property(name, "FULL_DEVICE_NAME")
    return Device(name, full_name, tuple(core.get_property(name, "OPTIMIZATION_CAPABILITIES")))


def _is_among(name: str, available: Sequence[str]) -> bool:
    return name in available or f"{name}.0" in available


def compile_for(
    device: Device, model: ov.Model, properties: Mapping[str, str], path: Path
) -> ov.CompiledModel | DeviceError:
    """The compiled model, or the error for what the device does not offer. path: where it lies."""
    try:
        return openvino_core().compile_model(model, device.name, dict(properties))
    except RuntimeError as error:
        settings = ", ".join(f"{key}={value}" for key, value in properties.items())
        return DeviceError(
            f"{path} does not compile for {device.name} with {settings or 'defaults'} "
            f"({openvino_message(error)}): check the properties, or try another kv or precision"
        )


def describe_machine(device: str) -> str:
    """Device, cores and OpenVINO version: what measured times depend on."""
    full_name = find_device(openvino_core(), device).full_name
    return f"{full_name}, {usable_cores()} cores, OpenVINO {ov.get_version()}"


def usable_cores() -> int:
    """Cores that this process may run on, which are fewer in some containers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def computes_in(device: str, precision: str) -> bool:
    """Whether a device lists a precision among its capabilities; f32 needs no mention."""
    needed = CAPABILITIES.get(precision)
    return needed is None or needed in find_device(openvino_core(), device).capabilities


def require_paged(device: Device) -> None:
    """Raise `DeviceError` for a device on which a paged KV cache has not been run."""
    if not device.takes_paged:
        raise DeviceError(f"{NOT_PAGED} {device.name}: leave out ", Option("kv", "paged"))


def causal_keys(device: Device) -> dict[str, str]:
    """Properties that keep the keys of a token as they are whatever follows it.

    Where a u8 cache is quantized by channel, as OpenVINO does on CPU unless told otherwise, all
    tokens of a block share a scale, so that a draft token changes the keys of those before it.
    """
    return {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"} if device.is_cpu else {}


def precision_properties(device: Device, precision: Precision) -> dict[str, str]:
    """OpenVINO properties for a precision; `DeviceError` if the device does not compute in it."""
    needed = CAPABILITIES.get(precision)
    if needed is not None and needed not in device.capabilities:
        raise DeviceError(
            f"precision '{precision}' is not offered by {device.name} here, which lists "
            f"{', '.join(device.capabilities)}: use default, f32 or exact"
        )
    if precision == "default" and not device.is_cpu:
        has_f16 = CAPABILITIES["f16"] in device.capabilities
        return dict(PRECISION_PROPERTIES["f16" if has_f16 else "f32"])
    return dict(PRECISION_PROPERTIES[precision])


def cache_precision(device: Device, properties: Mapping[str, str]) -> dict[str, str]:
    """The precision of KV caches beside those properties; none but on a GPU.

    A GPU itself chooses one whose states cannot be read, and that differs from pass to pass. It
    runs with caches of the precision that it computes in. Raises `DeviceError` for a pair that it
    does not run.
    """
    if device.kind != "GPU":
        return {}
    computes = properties["INFERENCE_PRECISION_HINT"]
    if computes not in ("f16", "f32"):
        raise DeviceError(
            f"INFERENCE_PRECISION_HINT={computes} does not run on {device.name}: use f16 or f32"
        )
    chosen = properties.get("KV_CACHE_PRECISION", computes)
    allowed = (computes, *COMPRESSED) if computes == "f16" else (computes,)
    if chosen not in allowed:
        raise DeviceError(
            f"KV_CACHE_PRECISION={chosen} does not run on {device.name} with "
            f"INFERENCE_PRECISION_HINT={computes}: use {' or '.join(allowed)}"
        )
    return {"KV_CACHE_PRECISION": chosen}


def has_readable_states(device: Device, properties: Mapping[str, str]) -> bool:
    """Whether states of a stateful KV cache can be read, which rolling back takes."""
    return device.is_cpu or properties.get("KV_CACHE_PRECISION") not in COMPRESSED
