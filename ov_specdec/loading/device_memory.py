"""Memory of devices: its free size, and memory for the blocks of a paged KV cache."""

import openvino as ov
import psutil
from openvino.properties.device import Type

from ov_specdec.loading.devices import Device, openvino_core
from ov_specdec.runner.block_memory import BlockMemory, RemoteMemory, VisibleMemory, content_of


def block_memory(device: Device) -> BlockMemory:
    """Memory for the blocks of a paged KV cache: the device's own, if it has some."""
    if device.is_cpu:
        return VisibleMemory()
    context = openvino_core().get_default_context(device.name)
    if _is_discrete(device):
        return RemoteMemory(context)

    def shared_zeros(element_type: ov.Type, shape: list[int]) -> ov.Tensor:
        tensor = context.create_host_tensor(element_type, ov.Shape(shape))
        content_of(tensor)[:] = 0
        return tensor

    return VisibleMemory(shared_zeros)


def free_memory(device: Device) -> int:
    """Free bytes for KV caches: of the host, of a GPU, or of shared memory."""
    free: int = psutil.virtual_memory().available
    if device.is_cpu or not device.takes_paged:
        return free
    total: int = openvino_core().get_property(device.name, "GPU_DEVICE_TOTAL_MEM_SIZE")
    used: dict[str, int] = openvino_core().get_property(device.name, "GPU_MEMORY_STATISTICS")
    own = total - sum(used.values())
    return own if _is_discrete(device) else min(own, free)


def largest_tensor(device: Device) -> int | None:
    """Maximum bytes of one tensor on a device; None: any number."""
    if device.is_cpu:
        return None
    size: int = openvino_core().get_property(device.name, "GPU_DEVICE_MAX_ALLOC_MEM_SIZE")
    return size


def _is_discrete(device: Device) -> bool:
    kind: Type = openvino_core().get_property(device.name, "DEVICE_TYPE")
    return bool(kind == Type.DISCRETE)
