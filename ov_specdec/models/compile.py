"""Compiles models, and makes their runners."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import openvino as ov

from ov_specdec.errors import DeviceError
from ov_specdec.models.devices import (
    block_memory,
    describe_machine,
    find_device,
    largest_tensor,
    openvino_core,
)
from ov_specdec.models.encoder import load_encoders
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.prepare import AS_ASKED, CompileShape, Prepared, prepare
from ov_specdec.models.runtime_config import Backend, KvBackend, RuntimeConfig
from ov_specdec.models.source import ModelSource, read_ir
from ov_specdec.runner.base import Runner
from ov_specdec.runner.encoder_decoder import Encoder, EncoderDecoderModel
from ov_specdec.runner.paged import PagedModel
from ov_specdec.runner.rewinding import RewindingModel
from ov_specdec.runner.stateful import StatefulModel


@dataclass(frozen=True)
class LoadedModel:
    """A compiled model, its KV backend, and the reason for that backend.

    folder, config: its source and settings. compiler: of its static shapes, if it may have some.
    """

    runner: Runner
    kv: Backend
    reason: str
    folder: ModelFolder
    config: RuntimeConfig
    compiler: CompileShape | None = None

    def fingerprint(self) -> str:
        """A key of all that the content of a KV cache depends on, besides the tokens."""
        return fingerprint(self.folder, self.config, self.kv)


def fingerprint(folder: ModelFolder, config: RuntimeConfig, kv: KvBackend) -> str:
    """A key of all that passes of a model, and so the content of its KV cache, depend on."""
    device = find_device(openvino_core(), config.device)
    properties = {**config.properties_for(device)}
    properties.pop("CACHE_DIR", None)  # no effect on results
    form = ["fused qkv"] if kv == "paged" and device.is_cpu else []
    if config.batch_invariant:
        form.append(f"batch invariant {config.shares_passes}")
    if folder.border is not None:
        form.append(f"border {folder.border}")
    # Processors of several generations may share a name, and a variable may limit instructions.
    acts_as = [os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")]
    machine = [describe_machine(config.device), *device.capabilities, *acts_as]
    parts = [folder.digest(), *machine, kv, *form, *sorted(map(str, properties.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


ToLoad = tuple[ModelSource, RuntimeConfig, int]
"""A model, how to compile it, and the size of its vocabulary."""


def load_model(source: ModelSource, config: RuntimeConfig, *, vocab_size: int) -> LoadedModel:
    """Compile one model. See `load_models`."""
    return load_models([(source, config, vocab_size)])[0]


def load_models(models: Sequence[ToLoad]) -> list[LoadedModel]:
    """Compile models in parallel, each on the device and KV backend of its config.

    Each has the size of its vocabulary; further columns of logits are cut off. May change the
    sources' IR. Raises `DeviceError` if a device does not support a setting, `ModelError` for a
    model whose KV cache cannot be rolled back.
    """
    prepared = [prepare(source, config, config.kv) for source, config, _ in models]
    # Only compilation, which releases the GIL: a thread that changes a graph under the GIL and one
    # that compiles can deadlock.
    with ThreadPoolExecutor() as pool:
        compiled = list(pool.map(Prepared.compile, prepared))
    sizes = [vocab_size for _, _, vocab_size in models]
    encoders = load_encoders([(source, config) for source, config, _ in models])
    return [_open(*model) for model in zip(prepared, compiled, sizes, encoders, strict=True)]


def _open(
    prepared: Prepared,
    model: ov.CompiledModel | DeviceError,
    vocab_size: int,
    encoder: Encoder | None,
) -> LoadedModel:
    """A runner on a compiled model, on another KV backend if it did not compile for the first.

    Raises the `DeviceError` if there is no other.
    """
    source, config = prepared.source, prepared.config
    if isinstance(model, DeviceError):
        if not prepared.may_fall_back:
            raise model
        fresh = replace(source, model=read_ir(source.folder))
        other = prepare(fresh, config, "stateful")
        reason = other.reason.replace(AS_ASKED, str(model), 1)
        return _open(replace(other, reason=reason), other.compile(), vocab_size, encoder)
    runner = _runner(prepared, model, vocab_size, encoder)
    compiler = prepared.compiler()
    return LoadedModel(runner, prepared.kv, prepared.reason, source.folder, config, compiler)


def _runner(
    prepared: Prepared, model: ov.CompiledModel, vocab_size: int, encoder: Encoder | None
) -> Runner:
    """The runner for a model's kind and KV backend."""
    max_length, original = prepared.max_length, prepared.source.folder.border
    if encoder is not None:
        return EncoderDecoderModel(
            model, prepared.axes, encoder, max_length=max_length, vocab_size=vocab_size
        )
    if prepared.kv == "paged":
        return PagedModel(
            model,
            max_length=max_length,
            vocab_size=vocab_size,
            memory=block_memory(prepared.device),
            max_cache_bytes=largest_tensor(prepared.device),
            is_invariant=prepared.config.batch_invariant,
            original_context=original,
        )
    if prepared.is_recurrent:
        return RewindingModel(
            model,
            prepared.axes,
            max_length=max_length,
            vocab_size=vocab_size,
            max_hidden=prepared.max_hidden,
            max_draft_tokens=None if prepared.copies_little else 0,
        )
    return StatefulModel(
        model,
        prepared.axes,
        max_length=max_length,
        vocab_size=vocab_size,
        max_hidden=prepared.max_hidden,
        shares_states=prepared.device.is_cpu,
        original_context=original,
    )
