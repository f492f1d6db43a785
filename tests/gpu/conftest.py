"""What runs on a GPU: one that is there, or the simulated one of `simulator.sh`."""

import os

import pytest

from ov_specdec import SpeculativePipeline
from tests.gpu.presence import HAS_GPU
from tests.prompts import PROMPTS

NUM_TOKENS = 32

collect_ignore_glob = [] if HAS_GPU else ["test_*.py"]


def pytest_configure(config):
    if "OV_SPECDEC_GPU" in os.environ and not HAS_GPU:
        raise pytest.UsageError(
            f"OpenVINO finds no GPU in the environment of {os.environ['OV_SPECDEC_GPU']}: make it "
            "anew with tests/gpu/simulator.sh"
        )


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
    with SpeculativePipeline(drafter="none", precision="exact") as cpu:
        return [text.token_ids for text in cpu.generate_batch(PROMPTS, max_new_tokens=NUM_TOKENS)]
