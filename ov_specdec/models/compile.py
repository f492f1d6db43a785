"""Compiles models, with their encoders and aligners, for their runners."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from filecmp import cmp

import openvino as ov

from ov_specdec.errors import DeviceError, ModelError, OptionError
from ov_specdec.graph.attention import Heads, give_weights
from ov_specdec.models.devices import (
    Backend,
    KvBackend,
    RuntimeConfig,
    compile_model,
    describe_machine,
)
from ov_specdec.models.exported import ExportedModel, open_exported, read_ir, read_model
from ov_specdec.models.folder import ModelFolder, digest_of
from ov_specdec.models.prepare import CompileShape, Prepared, prepare
from ov_specdec.runner.base import Runner
from ov_specdec.runner.encoder_decoder import Aligner, Encoder


@dataclass(frozen=True)
class LoadedModel:
    """A compiled model, its KV backend, and the reason for that backend.

    compiler: of its static shapes, if it may have some.
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
    device, properties = config.target, config.openvino_properties()
    properties.pop("CACHE_DIR", None)  # no effect on results
    form = ["fused qkv"] if kv == "paged" and device.is_cpu else []
    if config.batch_invariant:
        form.append("generated tokens are sequences of their own")
    if folder.original_length is not None:
        form.append(f"original_length {folder.original_length}")
    if config.projection is not None:
        form.append(f"hidden states {digest_of(config.projection)}")
    # Processors of several generations may share a name, and a variable may limit instructions.
    acts_as = [os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")]
    machine = [describe_machine(config.device), *device.capabilities, *acts_as]
    parts = [folder.digest(), *machine, kv, *form, *sorted(map(str, properties.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def load_model(exported: ExportedModel, config: RuntimeConfig) -> LoadedModel:
    """Compile one model. See `load_models`."""
    return load_models([(exported, config)])[0]


def load_models(models: Sequence[tuple[ExportedModel, RuntimeConfig]]) -> list[LoadedModel]:
    """Compile models in parallel, each on the device and KV backend of its config.

    May change their graphs. Raises `DeviceError` for a setting, `ModelError` for a model.
    """
    prepared = [prepare(exported, config) for exported, config in models]
    # Only compilation, which releases the GIL: a thread that changes a graph under the GIL and one
    # that compiles can deadlock.
    with ThreadPoolExecutor() as pool:
        compiling = [pool.submit(each.compile) for each in prepared]
    encoders = _load_encoders(models)
    return [
        _open(each, future.result, encoder)
        for each, future, encoder in zip(prepared, compiling, encoders, strict=True)
    ]


def load_stateful(folder: ModelFolder, config: RuntimeConfig, reason: str) -> LoadedModel:
    """Load a model anew, on a stateful KV cache. reason: why it has no paged one."""
    config = replace(config, kv="stateful", kv_reason=reason, batch_invariant=False)
    prepared = prepare(open_exported(folder.path), config)
    return _open(prepared, prepared.compile, None)


def _open(
    prepared: Prepared, compiled: Callable[[], ov.CompiledModel], encoder: Encoder | None
) -> LoadedModel:
    """A runner on a compiled model, on another KV backend if it did not compile for the first."""
    folder, config = prepared.exported.folder, prepared.config
    try:
        model = compiled()
    except DeviceError as error:
        if not prepared.may_fall_back:
            raise
        return load_stateful(folder, config, str(error))
    make_runner = prepared.make_runner
    runner = make_runner(model) if encoder is None else make_runner(model, encoder=encoder)
    runner.mask_token = folder.mask_token
    return LoadedModel(runner, prepared.kv, prepared.reason, folder, config, prepared.compiler())


def _load_encoders(models: Sequence[tuple[ExportedModel, RuntimeConfig]]) -> list[Encoder | None]:
    """The encoders of a main model and of its draft, which may share one; None for decoder-only."""
    (main, config), *drafts = models
    if not main.folder.is_encoder_decoder:
        if config.encoder_device is not None:
            problem = (
                f"{{encoder_device}} has no effect with {main.folder.path}, which is a decoder"
            )
            raise OptionError(f"{problem}: leave it out", encoder_device=config.encoder_device)
        return [None] * len(models)
    encoders: list[Encoder | None] = [_load_encoder(main, config)]
    for draft, own in drafts:
        encoders.append(encoders[0] if _shares_encoder(main, draft) else _load_encoder(draft, own))
    return encoders


def _load_encoder(exported: ExportedModel, config: RuntimeConfig) -> Encoder:
    """Compile an encoder; `ModelError` if there is none."""
    path = exported.folder.encoder_ir
    if not path.is_file():
        raise ModelError(f"{path} is missing: export the model again")
    config = replace(config, device=config.encoder_device or config.device)
    return Encoder(compile_model(read_model(path), config, path))


def _shares_encoder(main: ExportedModel, draft: ExportedModel) -> bool:
    """Whether a draft shares the main model's encoder: the same weights, or none in its folder."""
    path = draft.folder.encoder_ir
    one, other = (ir.with_suffix(".bin") for ir in (path, main.folder.encoder_ir))
    has_both = one.is_file() and other.is_file()  # reading an encoder reports a missing one
    return not path.is_file() or (has_both and cmp(one, other, shallow=False))


def load_aligner(
    folder: ModelFolder, config: RuntimeConfig, heads: Heads | None, encoder: Encoder
) -> Aligner:
    """Compile a second copy of a decoder for these heads; None: all of the upper half of layers.

    Raises `ModelError` if the model lacks a head, or its graph has no readable cross-attention.
    """
    model = read_ir(folder)
    try:
        give_weights(model, heads)
    except ModelError as error:
        raise ModelError(f"{folder.path} has no word times: {error}") from error
    return Aligner(compile_model(model, config, folder.ir), encoder)
