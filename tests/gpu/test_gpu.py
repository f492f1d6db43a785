"""The embedded pair on a GPU: what has to hold before a change lands; `test_gpu_deep` has more."""

import numpy as np
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.models.locate import embedded_folder
from ov_specdec.runner.base import Span
from tests.gpu.texts import alone, ids, together, verifies
from tests.support.prompts import PROMPTS


@pytest.fixture(scope="module")
def gpu(open_on_gpu):
    """The embedded pair in f32, with a cache for 16 sequences."""
    with open_on_gpu() as pipeline:
        yield pipeline


def number_sizes(pipeline):
    """Bytes of the numbers in the main model's KV cache."""
    tensors = pipeline.main.runner.memory.tensors.values()
    return {tensor.get_byte_size() / np.prod(tensor.get_shape()) for tensor in tensors}


def logits_after_a_rollback(pipeline):
    """Of tokens that read what lies before them in the KV cache, [6, vocab]."""
    runner = pipeline.main.runner
    slot = runner.open()
    runner.forward([Span(slot, range(300, 340), 1)])
    slot.rollback(21)
    return runner.forward([Span(slot, range(400, 406), 6)])[0].copy()


def test_speculative_texts_are_the_cpus_plain_ones(gpu, texts_of_cpu):
    results = alone(gpu, 4, PROMPTS[:10])
    assert ids(results) == texts_of_cpu[:10]
    assert verifies(results)
    assert gpu.main.kv == gpu.draft.kv == "paged"


def test_texts_of_sequences_that_share_passes_are_too(gpu, texts_of_cpu):
    results = together(gpu, 8)
    assert ids(results) == texts_of_cpu
    assert verifies(results)
    assert max(round_.num_sequences for round_ in results[0].stats.rounds) > 1


@pytest.mark.parametrize(
    "devices", [("GPU", "CPU"), pytest.param(("CPU", "GPU"), marks=pytest.mark.deep)]
)
def test_models_may_run_on_two_devices(devices, open_on_gpu, texts_of_cpu):
    with open_on_gpu(device=devices[0], draft_device=devices[1]) as pipeline:
        results = together(pipeline, 4, PROMPTS[:8])
        assert ids(results) == texts_of_cpu[:8]
        assert verifies(results)
        assert [model.config.device for model in (pipeline.main, pipeline.draft)] == [*devices]


@pytest.mark.deep
def test_the_default_precision_has_the_caches_that_go_with_it(open_on_gpu):
    draft = embedded_folder("draft")
    with open_on_gpu(draft, drafter="suffix", precision="default") as pipeline:
        assert verifies(alone(pipeline, 2, PROMPTS[3:6]))
        rounded = logits_after_a_rollback(pipeline)
        assert number_sizes(pipeline) == {2}
    with SpeculativePipeline(draft, drafter="none", precision="exact") as cpu:
        right = logits_after_a_rollback(cpu)
    assert np.abs(rounded - right).max() < 0.01 * np.ptp(right)


def test_blocks_are_copied_read_and_written_where_they_lie(gpu):
    memory = gpu.main.runner.memory
    name = next(iter(memory.tensors))
    content = np.arange(memory.read(name, [0]).size, dtype=np.uint32).astype(np.uint8)[None]
    memory.write(name, [3], content)
    memory.copy(3, 5)
    assert np.array_equal(memory.read(name, [5, 3]), np.repeat(content, 2, axis=0))
    gpu.main.runner.pool.forget(range(6))  # what was written over
