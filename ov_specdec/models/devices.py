"""OpenVINO's devices on this machine, and the settings with which a model is compiled for one."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import openvino as ov
import psutil
from openvino.properties.device import Type

from ov_specdec.errors import DeviceError, openvino_message
from ov_specdec.files import expand_home
from ov_specdec.runner.block_memory import BlockMemory, HostMemory, RemoteMemory

Precision = Literal["default", "exact", "f32", "bf16", "f16"]
Backend = Literal["paged", "stateful"]
KvBackend = Literal["auto", "paged", "stateful"]

StaticSizes = Sequence[int] | Literal["auto", "none"]
"""Numbers of tokens in a pass for which a paged main model also gets static shapes.

OpenVINO prepares a dynamic model again for each pass with another number of tokens than the last
one; a static shape needs no preparation, is faster in itself, and takes the memory of the weights
again. "auto": numbers that save most time, for small models. With either, a paged draft model has
some too.
"""

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
    def supports_paged(self) -> bool:
        """Whether `kv="auto"` may choose a paged KV cache: if that was tested."""
        return self.kind in SEEN

    @property
    def seen(self) -> str:
        """How this package was tested there: measured, simulated, never run."""
        return SEEN.get(self.kind, "never run")

    def computes_in(self, precision: str) -> bool:
        """Whether it lists a precision among its capabilities; all support f32."""
        names = {"bf16": "BF16", "f16": "FP16"}
        return precision in ("default", "f32", "exact") or names[precision] in self.capabilities


@cache
def openvino_core() -> ov.Core:
    """The one core of this process, which keeps its plugins loaded.

    OpenVINO's CPU plugin gives the thread that loads it a signal stack, and frees it with the
    plugin: after the end of a core, the next Ctrl-C would cause a segmentation fault.
    """
    return ov.Core()


def find_device(name: str) -> Device:
    """The device called `name`: a listed one, "GPU.0" for "GPU", or the best for "AUTO".

    Raises `DeviceError` if it does not exist here, or cannot hold a KV cache.
    """
    core, name = openvino_core(), name.upper()
    kind, _, wanted = name.partition(":")
    if kind in ("HETERO", "MULTI", "BATCH"):
        problem = f"device '{name}' spreads a model over devices, and a KV cache has to be on one"
        raise DeviceError(f"{problem}: name one of them, or AUTO")
    available = core.available_devices
    names = [name]
    if kind == "AUTO":
        names = wanted.split(",") if wanted else ["GPU", "CPU"]  # the best first, as in OpenVINO
    found = [each for own in names for each in (own, f"{own}.0") if each in available]
    if not found:
        hint = " (an Intel GPU is GPU)" if kind in ("CUDA", "MPS", "XPU", "HIP") else ""
        there = f"OpenVINO finds {', '.join(available)} here{hint}"
        raise DeviceError(f"device '{name}' is not available: {there}")
    full_name = core.get_property(found[0], "FULL_DEVICE_NAME")
    capabilities = tuple(core.get_property(found[0], "OPTIMIZATION_CAPABILITIES"))
    return Device(found[0], full_name, capabilities)


@dataclass(frozen=True)
class RuntimeConfig:
    """How one model of a pipeline is compiled: options of the pipeline, by their names, and more.

    kv_reason: why `kv` is not "auto". batch_invariant: run passes of a paged model in the
    batch-invariant form. kept_tokens: those whose logits are computed; None: all. projection: the
    IR of what it gives to a draft model of its hidden states; None: nothing.
    """

    device: str = "CPU"
    kv: KvBackend = "auto"
    kv_reason: str = "as requested"
    precision: Precision = "default"
    properties: Mapping[str, str] | None = None
    max_masked_tokens: int | None = None
    num_threads: int | None = None
    cache_dir: str | Path | None = None
    encoder_device: str | None = None
    static_shapes: StaticSizes = "none"
    batch_invariant: bool = False
    max_model_len: int | None = None
    kept_tokens: frozenset[int] | None = None
    projection: Path | None = None

    @property
    def static_sizes(self) -> list[int]:
        """The requested sizes of static shapes."""
        return [] if isinstance(self.static_shapes, str) else list(self.static_shapes)

    @cached_property
    def target(self) -> Device:
        """The device of that name. Raises as `find_device` does."""
        return find_device(self.device)

    def openvino_properties(self) -> dict[str, str]:
        """OpenVINO properties, given ones first; `DeviceError` for unsupported settings."""
        device, given, precision = self.target, self.properties or {}, self.precision
        if precision == "default" and not device.is_cpu:  # the CPU needs no help
            is_accurate = given.get("EXECUTION_MODE_HINT") == "ACCURACY"
            precision = "f16" if device.computes_in("f16") and not is_accurate else "f32"
        if not device.computes_in(precision):
            listed = f"{device.name} here, which lists {', '.join(device.capabilities)}"
            problem = f"precision '{precision}' is not offered by {listed}"
            raise DeviceError(f"{problem}: use default, f32 or exact")
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
        properties |= _cache_precision(device, properties)
        if folder := properties.pop("CACHE_DIR", ""):
            # A GPU's plugin would load models that were compiled with other properties.
            digest = hashlib.sha256(repr((device.name, sorted(properties.items()))).encode())
            properties["CACHE_DIR"] = str(Path(folder) / digest.hexdigest()[:16])
        return properties

    @property
    def has_readable_states(self) -> bool:
        """Whether states of a stateful KV cache are readable, which rollback needs."""
        chosen = self.openvino_properties().get("KV_CACHE_PRECISION")
        return self.target.is_cpu or chosen not in COMPRESSED


def _cache_precision(device: Device, properties: Mapping[str, str]) -> dict[str, str]:
    """The precision of KV caches for these properties, where it is not the device's own choice.

    A CPU's, u8, is unpacked for each query. Where it computes in f32, f16 takes 0.79 to 0.97 of the
    time for passes of SmolLM2-135M over 1,500 tokens, of 1.5 B parameters the same (two cores of a
    Zen 3); likelihoods of texts differ by 0.001. A GPU's choice has unreadable states, and differs
    between passes.
    """
    if device.is_cpu:
        own = "bf16" if device.computes_in("bf16") else "f32"
        computes = properties.get("INFERENCE_PRECISION_HINT", own)
        is_accurate = properties.get("EXECUTION_MODE_HINT") == "ACCURACY"
        is_chosen = "KV_CACHE_PRECISION" in properties or is_accurate or computes != "f32"
        return {} if is_chosen else {"KV_CACHE_PRECISION": "f16"}
    if device.kind != "GPU":
        return {}
    computes = properties["INFERENCE_PRECISION_HINT"]
    if computes not in ("f16", "f32"):
        problem = f"INFERENCE_PRECISION_HINT={computes} does not run on {device.name}"
        raise DeviceError(f"{problem}: use f16 or f32")
    chosen = properties.get("KV_CACHE_PRECISION", computes)
    allowed = (computes, *COMPRESSED) if computes == "f16" else (computes,)
    if chosen not in allowed:
        raise DeviceError(
            f"KV_CACHE_PRECISION={chosen} does not run on {device.name} with "
            f"INFERENCE_PRECISION_HINT={computes}: use {' or '.join(allowed)}"
        )
    return {"KV_CACHE_PRECISION": chosen}


CPU_OPTIONS = {"CPU_RUNTIME_CACHE_CAPACITY": "200"}
"""Entries of the cache in which OpenVINO keeps operations prepared for their shapes, 5000 by
default. Passes over prompts have hundreds of sizes. Memory of 1,900 requests of the embedded pair
grew by 367 MiB with 5000, by 163 with 200 and by 101 with 100, and the speed stayed the same.
"""


def compile_model(
    model: ov.Model, config: RuntimeConfig, path: Path, **more: str
) -> ov.CompiledModel:
    """The compiled model; `DeviceError` if that fails.

    path: of the model, for the message. more: properties besides those of the configuration.
    """
    device, properties = config.target, {**config.openvino_properties(), **more}
    try:
        options = {**(CPU_OPTIONS if device.is_cpu else {}), **properties}
        compiled = openvino_core().compile_model(model, device.name, options)
    except RuntimeError as error:
        settings = ", ".join(f"{key}={value}" for key, value in properties.items()) or "defaults"
        reason = f"for {device.name} with {settings} ({openvino_message(error)})"
        remedy = "check the properties, or try another kv or precision"
        raise DeviceError(f"{path} does not compile {reason}: {remedy}") from error
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


def block_memory(device: Device) -> BlockMemory:
    """Memory for the blocks of a paged KV cache: the device's own, if it has some."""
    if device.is_cpu:
        return HostMemory()
    return RemoteMemory(openvino_core().get_default_context(device.name))


def free_memory(device: Device) -> int:
    """Free bytes for KV caches: of the host, of a GPU, or of shared memory."""
    free: int = psutil.virtual_memory().available
    if device.is_cpu or not device.supports_paged:
        return free
    total: int = openvino_core().get_property(device.name, "GPU_DEVICE_TOTAL_MEM_SIZE")
    used: dict[str, int] = openvino_core().get_property(device.name, "GPU_MEMORY_STATISTICS")
    own = total - sum(used.values())
    is_discrete = openvino_core().get_property(device.name, "DEVICE_TYPE") == Type.DISCRETE
    return own if is_discrete else min(own, free)
