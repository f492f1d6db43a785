"""Whether there is a GPU, real or simulated."""

from ov_specdec.loading.devices import openvino_core

HAS_GPU = any(name.startswith("GPU") for name in openvino_core().available_devices)
