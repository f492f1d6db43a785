"""Whether there is a GPU, real or simulated."""

from functools import cache

from ov_specdec.models.devices import openvino_core


@cache
def has_gpu():
    """Asked late: OpenVINO reads how many cores a process has when it is first used."""
    return any(name.startswith("GPU") for name in openvino_core().available_devices)
