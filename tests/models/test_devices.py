"""Devices that have memory of their own, and what `check` says of them; by fakes and on the CPU."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import openvino as ov
import pytest

from ov_specdec.cli import check as check_command
from ov_specdec.cli.check import compare_with_cpu
from ov_specdec.errors import CacheFullError, OptionError
from ov_specdec.models import budgets, devices
from ov_specdec.models.agreement import Agreement
from ov_specdec.models.budgets import GB, limit_memory
from ov_specdec.models.devices import Device, RuntimeConfig
from ov_specdec.runner.block_memory import HostMemory, bytes_of_block
from tests.support.command_line import run

GPU = Device("GPU.0", "Fake GPU", ("FP32", "FP16"))
CPU = Device("CPU", "Fake CPU", ("FP32",))


@dataclass
class FakeRunner:
    """A model whose tokens take so much memory, and its recurrent states."""

    bytes_per_token: int
    bytes_per_state: int = 0
    max_length: int = 1000
    most: int = 10_000
    limits: list[int] = field(default_factory=list)

    def limit(self, num_tokens, num_states):
        if num_tokens > self.most:
            raise CacheFullError("no memory")
        self.limits += [num_tokens, num_states] if self.bytes_per_state else [num_tokens]


@pytest.fixture
def limit(monkeypatch):
    """Limits models on devices; the tokens that each may hold. free: bytes of each device."""

    def limited(*models, size=None, free=0):
        monkeypatch.setattr(devices, "find_device", lambda name: CPU if name == "CPU" else GPU)
        monkeypatch.setattr(budgets, "free_memory", lambda device: free)
        runners = [FakeRunner(*num_bytes) for _, *num_bytes in models]
        loaded = [
            SimpleNamespace(runner=runner, config=RuntimeConfig(device))
            for runner, (device, *_) in zip(runners, models, strict=True)
        ]
        limit_memory(loaded, size, 4)
        return [runner.limits for runner in runners]

    return limited


@pytest.mark.parametrize(
    ("models", "memory", "limits"),
    [
        ([("CPU", 300), ("CPU", 100)], {"size": 800_000 / GB}, [[2000], [2000]]),
        ([("CPU", 300), ("CPU", 100)], {"free": 800_000}, [[1000], [1000]]),
        ([("CPU", 300), ("CPU", 100)], {"free": 8_000_000}, [[4096], [4096]]),  # whole blocks
        ([("GPU", 300), ("CPU", 100)], {"size": 300_000 / GB}, [[1000], [3000]]),
        # They may have the host's memory in common.
        ([("GPU", 300), ("CPU", 100)], {"free": 1_200_000}, [[1000], [3000]]),
        ([("GPU", 300), ("GPU.0", 100)], {"size": 800_000 / GB}, [[2000], [2000]]),
        # Of recurrent states 20 for each of four sequences, and one that may come.
        ([("CPU", 300, 1000), ("CPU", 100)], {"free": 800_000}, [[750, 100], [750]]),
        # They take half of the memory at most.
        ([("CPU", 300, 1000), ("CPU", 100)], {"size": 40_000 / GB}, [[50, 20], [50]]),
    ],
)
def test_models_on_one_device_share_its_memory(limit, models, memory, limits):
    assert limit(*models, **memory) == limits


def test_a_device_that_others_use_gives_less_unless_asked_for_an_amount(limit):
    models = ("GPU", 400, 0, 1000, 700)
    assert limit(models, free=800_000) == [[500]]
    with pytest.raises(CacheFullError):
        limit(models, size=400_000 / GB)


def test_memory_that_a_device_manages_itself_has_no_limit(limit):
    with pytest.raises(OptionError, match="kv_cache_size=1 has no effect on a stateful"):
        limit(("GPU", 0), ("CPU", 100), size=1)


@pytest.mark.parametrize(("kind", "num_bytes"), [("u4", 24), ("u8", 48), ("f16", 96), ("f32", 192)])
def test_blocks_of_any_type_are_copied_whole(kind, num_bytes):
    port = SimpleNamespace(
        element_type=getattr(ov.Type, kind), partial_shape=ov.PartialShape([-1, 2, 3, 8])
    )
    assert bytes_of_block(port) == num_bytes
    memory = HostMemory()
    memory.allocate({"key_cache.0": port}, 4)
    content = np.arange(1, num_bytes + 1, dtype=np.uint8)[None]
    memory.write("key_cache.0", [1], content)
    memory.copy(1, 3)
    held = memory.read("key_cache.0", [3, 1, 0, 2])
    assert np.array_equal(held[:2], np.repeat(content, 2, axis=0))
    assert not held[2:].any()


def test_a_device_that_gives_other_texts_than_the_cpu_is_seen(tiny_pair, monkeypatch):
    monkeypatch.setattr(check_command, "NUM_TOKENS", 12)
    agreements = list(compare_with_cpu(*tiny_pair, "CPU"))
    plain = [f"{kind}, plain" for kind in ("exact, paged", "exact, stateful", "default, paged")]
    assert [agreement.finding.split(": ")[0] for agreement in agreements][::5] == plain
    assert not any(agreement.is_broken for agreement in agreements)
    assert any("draft tokens accepted" in agreement.finding for agreement in agreements)
    generate = check_command.SpeculativePipeline.generate

    def spoiled(pipeline, prompt, **options):
        result = generate(pipeline, prompt, **options)
        return replace(result, token_ids=[1, *result.token_ids[1:]]) if pipeline.draft else result

    monkeypatch.setattr(check_command.SpeculativePipeline, "generate", spoiled)
    first = next(compare_with_cpu(*tiny_pair, "CPU"))
    assert first.is_broken
    assert first.finding.endswith(": WRONG")


@pytest.mark.parametrize(("is_broken", "code"), [(False, 0), (True, 1)])
def test_check_says_by_its_exit_code_whether_a_device_is_right(monkeypatch, is_broken, code):
    given = []

    def compared(*arguments, **options):
        given.append((arguments, options))
        yield Agreement("exact, paged, plain: 4 of 4 texts equal the CPU's", is_broken)

    monkeypatch.setattr(check_command, "find_device", lambda name: GPU)
    monkeypatch.setattr(check_command, "describe_machine", lambda device: "Fake GPU")
    monkeypatch.setattr(check_command, "compare_with_cpu", compared)
    done = run("check", "--device", "GPU", "--precision", "f32", "--property", "A=1")
    assert done.returncode == code
    assert "exact, paged, plain: 4 of 4 texts equal the CPU's\n" in done.stdout
    assert given == [((None, None, "GPU"), {"precision": "f32", "properties": {"A": "1"}})]
