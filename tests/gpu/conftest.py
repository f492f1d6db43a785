"""What runs on a GPU: one that is there, or the simulated one of `simulator.sh`."""

import os

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.models.devices import openvino_core
from tests.gpu.texts import plain_on_cpu
from tests.support.prompts import PROMPTS


@pytest.fixture(scope="session", autouse=True)
def _gpu():
    """Skips where there is no GPU, and fails where there should be one."""
    # Asked late: OpenVINO reads how many cores a process has when it is first used.
    if not any(name.startswith("GPU") for name in openvino_core().available_devices):
        if simulator := os.environ.get("OV_SPECDEC_GPU"):
            pytest.fail(f"no GPU in {simulator}: make it anew with lab/gpu/simulator.sh")
        pytest.skip("OpenVINO finds no GPU here: lab/gpu/simulator.sh makes one")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Folder of compiled models, which takes the second loading from half a minute to a second."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="session")
def open_on_gpu(compiled):
    """Opens pipelines in f32 on a GPU, unless told otherwise; the caller closes them."""

    def opened(*models, **options):
        given = {"device": "GPU", "precision": "exact", "profile": "none", "cache_dir": compiled}
        return SpeculativePipeline(*models, **{**given, **options})

    return opened


@pytest.fixture(scope="session")
def texts_of_cpu():
    """The ids of plain decoding on the CPU in f32, for `PROMPTS`."""
    return plain_on_cpu(PROMPTS)
