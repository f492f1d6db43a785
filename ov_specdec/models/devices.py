"""OpenVINO's devices on this machine: precisions, memory, and support for a paged KV cache."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import openvino as ov
import psutil
from openvino.properties.device import Type

from ov_specdec.errors import DeviceError, openvino_message
from ov_specdec.runner.block_memory import BlockMemory, HostMemory, RemoteMemory

Precision = Literal["default", "exact", "f32", "bf16", "f16"]

EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}
"""Properties of `exact` precision, f32 numerics: only weights may be quantized."""

COMPRESSED = ("i8", "u8")
"""Quantized precisions of KV caches, which have scales."""

SEEN = {"CPU": "measured", "GPU": "simulated"}
"""How this package was tested on a kind of device."""

NOT_PAGED = "a paged KV cache has not been run on"
"""Reason for the stateful cache of `kv="auto"` on a device, whose name follows."""


@dataclass(frozen=True)
class Device:
    """A device as OpenVINO describes it, and its support by this package."""

    name: str
    full_name: str
    capabilities: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Its name without its number: CPU, GPU, NPU."""
        return self.name.partition(".")[0]

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU, which has its own properties, and uses host memory."""
        return self.kind == "CPU"

    @property
    def takes_paged(self) -> bool:
        """Whether `kv="auto"` may choose a paged KV cache: if that was tested."""
        return self.kind in SEEN

    @property
    def seen(self) -> str:
        """How this package was tested there: measured, simulated, never run."""
        return SEEN.get(self.kind, "never run")


@cache
def openvino_core() -> ov.Core:
    """The one core of this process, which keeps its plugins loaded.

    OpenVINO's CPU plugin gives the thread that loads it a signal stack, and frees it with the
    plugin: after the end of a core, the next Ctrl-C would cause a segmentation fault.
    """
    return ov.Core()


def find_device(name: str) -> Device:
    """The device called `name`: a listed one, "GPU.0" for "GPU", or the best for "AUTO".

    Names are case-insensitive. Raises `DeviceError` if it does not exist here, or cannot hold a KV
    cache.
    """
    core, name = openvino_core(), name.upper()
    kind, _, wanted = name.partition(":")
    if kind in ("HETERO", "MULTI", "BATCH"):
        raise DeviceError(
            f"device '{name}' spreads a model over devices, and a KV cache has to be on one: name "
            "one of them, or AUTO"
        )
    available = core.available_devices
    names = [name]
    if kind == "AUTO":
        names = wanted.split(",") if wanted else ["GPU", "CPU"]  # the best first, as in OpenVINO
    found = [each for own in names for each in (own, f"{own}.0") if each in available]
    if not found:
        hint = " (an Intel GPU is GPU)" if kind in ("CUDA", "MPS", "XPU", "HIP") else ""
        raise DeviceError(
            f"device '{name}' is not available: OpenVINO finds {', '.join(available)} here{hint}"
        )
    full_name = core.get_property(found[0], "FULL_DEVICE_NAME")
    capabilities = tuple(core.get_property(found[0], "OPTIMIZATION_CAPABILITIES"))
    return Device(found[0], full_name, capabilities)


CPU_OPTIONS = {"CPU_RUNTIME_CACHE_CAPACITY": "200"}
"""Entries of the cache in which OpenVINO keeps operations prepared for their shapes, 5000 by
default. Passes over prompts have hundreds of sizes. Memory of 1,900 requests of the embedded pair
grew by 367 MiB with 5000, by 163 with 200 and by 101 with 100, and the speed stayed the same.
"""


def compile_for(
    device: Device, model: ov.Model, properties: Mapping[str, str], path: Path
) -> ov.CompiledModel:
    """The compiled model; `DeviceError` if that fails. path: of the model, for the message."""
    try:
        options = {**(CPU_OPTIONS if device.is_cpu else {}), **properties}
        compiled = openvino_core().compile_model(model, device.name, options)
    except RuntimeError as error:
        settings = ", ".join(f"{key}={value}" for key, value in properties.items())
        raise DeviceError(
            f"{path} does not compile for {device.name} with {settings or 'defaults'} "
            f"({openvino_message(error)}): check the properties, or try another kv or precision"
        ) from error
    is_one_thread = device.is_cpu and compiled.get_property("INFERENCE_NUM_THREADS") == 1
    return OneThreadModel(compiled) if is_one_thread else compiled


class OneThreadModel(ov.CompiledModel):  # type: ignore[misc]
    """A model compiled for one CPU thread, with passes that raise their errors.

    On one thread, OpenVINO 2026.4 drops the error of `InferRequest.infer`: outputs keep the values
    of the previous pass. It also runs the failed pass again before each later one, even in models
    that are compiled after its memory was freed. `start_async` has neither fault, and takes 0.01 ms
    longer.
    """

    def create_infer_request(self) -> ov.InferRequest:
        """A request, whose `infer` raises errors."""
        return OneThreadRequest(super().create_infer_request())


class OneThreadRequest(ov.InferRequest):  # type: ignore[misc]
    """A request of a model on one thread."""

    def infer(
        self, inputs: Any = None, share_inputs: bool = False, share_outputs: bool = False
    ) -> Any:
        """Run a pass; outputs by port, views of tensors if `share_outputs`."""
        self.start_async(inputs, share_inputs=share_inputs)
        self.wait()
        if not share_outputs:
            return self.results
        return {port: self.get_tensor(port).data for port in self.model_outputs}


def describe_machine(device: str) -> str:
    """Device, cores and OpenVINO version, on which measured times depend: a part of their keys."""
    full_name = find_device(device).full_name
    return f"{full_name}, {usable_cores()} cores, OpenVINO {ov.get_version()}"


def usable_cores() -> int:
    """Cores that this process may use, which are fewer in some containers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def computes_in(device: Device, precision: str) -> bool:
    """Whether a device lists a precision among its capabilities; all support f32."""
    needed = {"bf16": "BF16", "f16": "FP16"}.get(precision)
    return needed is None or needed in device.capabilities


def cache_precision(device: Device, properties: Mapping[str, str]) -> dict[str, str]:
    """The precision of KV caches for these properties; empty except on a GPU.

    A GPU's own choice has unreadable states, and differs between passes. It supports caches in the
    inference precision. Raises `DeviceError` for an unsupported pair.
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
    """Whether states of a stateful KV cache are readable, which rollback needs."""
    return device.is_cpu or properties.get("KV_CACHE_PRECISION") not in COMPRESSED


def block_memory(device: Device) -> BlockMemory:
    """Memory for the blocks of a paged KV cache: the device's own, if it has some."""
    if device.is_cpu:
        return HostMemory()
    return RemoteMemory(openvino_core().get_default_context(device.name))


def free_memory(device: Device) -> int:
    """Free bytes for KV caches: of the host, of a GPU, or of shared memory."""
    free: int = psutil.virtual_memory().available
    if device.is_cpu or not device.takes_paged:
        return free
    total: int = openvino_core().get_property(device.name, "GPU_DEVICE_TOTAL_MEM_SIZE")
    used: dict[str, int] = openvino_core().get_property(device.name, "GPU_MEMORY_STATISTICS")
    own = total - sum(used.values())
    is_discrete = openvino_core().get_property(device.name, "DEVICE_TYPE") == Type.DISCRETE
    return own if is_discrete else min(own, free)
