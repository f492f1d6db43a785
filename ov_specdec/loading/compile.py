"""Compiles a model from its source: KV backend, properties, runner."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import openvino as ov

from ov_specdec.errors import DeviceError, ModelError, Option, OptionError
from ov_specdec.loading.attention import (
    count_windowed,
    is_local,
    require_whole,
    require_windows,
    warn_of_lost_cap,
)
from ov_specdec.loading.device_memory import block_memory, largest_tensor
from ov_specdec.loading.devices import (
    NOT_PAGED,
    Device,
    compile_for,
    describe_machine,
    find_device,
    has_readable_states,
    openvino_core,
    require_paged,
)
from ov_specdec.loading.encoder import load_encoders
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.graph import (
    choose_factors,
    has_delta_rule,
    hides_by_mask,
    recurrent_bytes,
    recurrent_state,
    repeat_attention_rows,
    select_rows,
    sequence_axes,
    to_paged,
)
from ov_specdec.loading.key_cache import center_keys
from ov_specdec.loading.qkv import fuse_qkv
from ov_specdec.loading.runtime_config import Backend, KvBackend, RuntimeConfig
from ov_specdec.loading.source import ModelSource, read_ir
from ov_specdec.loading.static_shapes import COMPILE_OPTIONS, ShapeCompiler
from ov_specdec.runner.base import Runner
from ov_specdec.runner.encoder import Encoder
from ov_specdec.runner.encoder_decoder import EncoderDecoderModel
from ov_specdec.runner.paged import PagedModel
from ov_specdec.runner.rewinding import RewindingModel
from ov_specdec.runner.stateful import MAX_HIDDEN, StatefulModel

MOST_COPIED = 0.01
"""Maximum size of recurrent states relative to weights for copies in each round. For an LFM2 of
354 M it is 0.0003, and copying takes 0.6 of 23 ms. For a Qwen3.5 of 0.8 B it is 0.05, and copying
takes 15 of 49 ms: suffix drafts had a speedup of 0.83 to 1.21."""

FREE_ROLLBACK = "drops rejected draft tokens at no cost"
AS_ASKED = "as requested"
"""The reason for a KV backend that the caller chose."""

OWN_STATES = "past_key_values"
"""Prefix of states with a sequence's own keys and values, if other states hold its source's."""


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
    compiler: ShapeCompiler | None = None

    def fingerprint(self) -> str:
        """A key of all that the content of a KV cache depends on, besides the tokens."""
        found = fingerprint(self.folder, self.config, self.kv)
        most = self.runner.max_pass_tokens if isinstance(self.runner, PagedModel) else None
        return found if most is None else f"{found} in passes of {most}"


def fingerprint(folder: ModelFolder, config: RuntimeConfig, kv: Backend) -> str:
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


@dataclass(frozen=True)
class _Prepared:
    """A model ready to compile, with the arguments of its runner."""

    source: ModelSource
    config: RuntimeConfig
    device: Device
    kv: Backend
    reason: str
    model: ov.Model
    axes: dict[str, int]
    max_hidden: int

    @property
    def max_length(self) -> int:
        """Maximum tokens of a sequence; `OptionError` for more than the model's context."""
        context, wanted = self.source.folder.context_length, self.config.max_model_len
        if wanted is not None and wanted > context:
            raise OptionError(
                Option("max_model_len", wanted),
                f" is more than the context of {self.source.folder.path}, {context} tokens: lower "
                "it",
            )
        return context if wanted is None else wanted

    @property
    def may_fall_back(self) -> bool:
        """Whether another KV backend may be tried; a stateful one has no static shapes."""
        if self.kv != "paged" or self.config.kv != "auto" or _needs_static_shapes(self.config):
            return False
        return has_readable_states(self.device, self.config.properties_for(self.device))

    def compile(self) -> ov.CompiledModel | DeviceError:
        """The compiled model, or the error of the device."""
        properties = self.config.properties_for(self.device)
        return compile_for(self.device, self.model, properties, self.source.folder.path)

    def compiler(self) -> ShapeCompiler | None:
        """The compiler of its static shapes; None on a GPU, which fails to run them.

        Models with a gated delta rule have none, so "auto" does not try.
        """
        wanted = self.config.static_shapes
        if wanted == "none" or self.kv != "paged" or not self.device.is_cpu:
            return None
        if wanted == "auto" and has_delta_rule(self.model):
            return None
        device, folder = self.device, self.source.folder
        properties = {**self.config.properties_for(device), **COMPILE_OPTIONS}
        return ShapeCompiler(
            self.model,
            lambda graph: compile_for(device, graph, properties, folder.path),
            folder.num_bytes,
        )


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
    prepared = [_prepare(source, config, config.kv) for source, config, _ in models]
    # Only compilation, which releases the GIL: a thread that changes a graph under the GIL and one
    # that compiles can deadlock.
    with ThreadPoolExecutor() as pool:
        compiled = list(pool.map(_Prepared.compile, prepared))
    sizes = [vocab_size for _, _, vocab_size in models]
    encoders = load_encoders([(source, config) for source, config, _ in models])
    return [_open(*model) for model in zip(prepared, compiled, sizes, encoders, strict=True)]


def _prepare(source: ModelSource, config: RuntimeConfig, kv: KvBackend) -> _Prepared:
    device = find_device(openvino_core(), config.device)
    if source.folder.is_encoder_decoder:
        return _prepare_encoder_decoder(source, config, device)
    state = recurrent_state(source.model)
    max_hidden = config.max_hidden_tokens
    if max_hidden is None:
        # A GPU once read masked entries.
        max_hidden = MAX_HIDDEN if device.is_cpu else 0
    # In a window or chunk, hidden entries would displace visible ones.
    if is_local(source) or not hides_by_mask(source.model):
        max_hidden = 0
    warn_of_lost_cap(source)
    backend, reason, model = _choose_backend(source, device, kv, config.max_model_len)
    if state is not None and not device.is_cpu:
        raise DeviceError(
            f"{source.folder.path} has recurrent states ('{state}'), which have not been run on "
            f"{device.name}: use ",
            Option("device", "CPU"),
        )
    axes: dict[str, int] = {}
    if backend == "stateful":
        axes = sequence_axes(model)
        if state is not None and not _copies_little(model, source.folder):
            reason = f"{reason}; copying its recurrent states takes long: nothing is drafted"
        _refuse_static_shapes(config, reason)
        _require_readable_states(config, device)
    elif config.max_hidden_tokens is not None:
        raise OptionError(
            Option("max_hidden_tokens", config.max_hidden_tokens),
            f" has no effect on {source.folder.path}, whose KV cache is paged: leave it out, or "
            "add ",
            Option("kv", "stateful"),
        )
    select_rows(model, axis=0 if backend == "paged" else 1)
    # Recurrent layers have as many rows as attention.
    repeats_rows = config.batch_invariant and config.shares_passes and state is None
    if backend == "paged" and repeats_rows:
        repeat_attention_rows(model)
    if source.folder.border is not None and not choose_factors(model, source.folder.border):
        raise _lacks_choice(source.folder)
    return _Prepared(source, config, device, backend, reason, model, axes, max_hidden)


def _lacks_choice(folder: ModelFolder) -> ModelError:
    return ModelError(
        f"{folder.path}/config.json has other factors for texts of more than {folder.border} "
        "tokens (LongRoPE), but its graph does not select them: export the model again "
        "with ov-specdec export, or set max_position_embeddings in config.json to "
        f"{folder.border} to use it for shorter texts"
    )


def _prepare_encoder_decoder(
    source: ModelSource, config: RuntimeConfig, device: Device
) -> _Prepared:
    """Prepare the decoder of an encoder-decoder model, whose states are trimmed at once."""
    if config.kv == "paged":
        raise OptionError(
            Option("kv", "paged"),
            f" cannot be used with {source.folder.path}, an encoder-decoder model: leave it out",
        )
    if config.max_hidden_tokens:
        raise OptionError(
            Option("max_hidden_tokens", config.max_hidden_tokens),
            f" cannot be used with {source.folder.path}, an encoder-decoder model, whose KV cache "
            "is always trimmed: leave it out",
        )
    axes = sequence_axes(source.model, OWN_STATES)
    if not axes:
        raise ModelError(
            f"{source.folder.ir} has no states '{OWN_STATES}': export the model again with "
            "optimum-intel 2.1 or later"
        )
    reason = "an encoder-decoder model"
    _refuse_static_shapes(config, reason)
    _require_readable_states(config, device)
    select_rows(source.model, axis=1)
    return _Prepared(source, config, device, "stateful", reason, source.model, axes, 0)


def _needs_static_shapes(config: RuntimeConfig) -> bool:
    """Whether sizes of static shapes were requested."""
    return not isinstance(config.static_shapes, str)


def _refuse_static_shapes(config: RuntimeConfig, reason: str) -> None:
    if _needs_static_shapes(config):
        raise OptionError(
            Option("static_shapes", list(config.static_shapes)),
            f" needs a paged KV cache, and the main model's is stateful ({reason}): leave it out",
        )


def _require_readable_states(config: RuntimeConfig, device: Device) -> None:
    properties = config.properties_for(device)
    if not has_readable_states(device, properties):
        raise DeviceError(
            f"KV_CACHE_PRECISION={properties['KV_CACHE_PRECISION']} cannot be used with a stateful "
            f"KV cache on {device.name}, whose states could not be read: leave it out"
        )


def _open(
    prepared: _Prepared,
    model: ov.CompiledModel | DeviceError,
    vocab_size: int,
    encoder: Encoder | None,
) -> LoadedModel:
    """A runner on a compiled model, on another KV backend if it did not compile for the first.

    Raises the `DeviceError` if there is no other.
    """
    folder = prepared.source.folder
    max_length, border = prepared.max_length, folder.border
    if isinstance(model, DeviceError):
        if not prepared.may_fall_back:
            raise model
        fresh = replace(prepared.source, model=read_ir(prepared.source.folder))
        other = _prepare(fresh, prepared.config, "stateful")
        reason = other.reason.replace(AS_ASKED, str(model), 1)
        return _open(replace(other, reason=reason), other.compile(), vocab_size, encoder)
    if encoder is not None:
        decoder = EncoderDecoderModel(
            model, prepared.axes, encoder, max_length=max_length, vocab_size=vocab_size
        )
        return _loaded(decoder, prepared)
    if prepared.kv == "paged":
        return _loaded(_open_paged(prepared, model, vocab_size), prepared)
    if recurrent_state(prepared.model) is not None:
        rewinding = RewindingModel(
            model,
            prepared.axes,
            max_length=max_length,
            vocab_size=vocab_size,
            max_hidden=prepared.max_hidden,
            max_draft_tokens=None if _copies_little(prepared.model, folder) else 0,
        )
        return _loaded(rewinding, prepared)
    stateful = StatefulModel(
        model,
        prepared.axes,
        max_length=max_length,
        vocab_size=vocab_size,
        max_hidden=prepared.max_hidden,
        shares_states=prepared.device.is_cpu,
        border=border,
    )
    return _loaded(stateful, prepared)


def _open_paged(prepared: _Prepared, model: ov.CompiledModel, vocab_size: int) -> PagedModel:
    """A paged runner with memory of its device."""
    return PagedModel(
        model,
        max_length=prepared.max_length,
        vocab_size=vocab_size,
        memory=block_memory(prepared.device),
        max_cache_bytes=largest_tensor(prepared.device),
        is_invariant=prepared.config.batch_invariant,
        border=prepared.source.folder.border,
    )


def _loaded(runner: Runner, prepared: _Prepared) -> LoadedModel:
    return LoadedModel(
        runner,
        prepared.kv,
        prepared.reason,
        prepared.source.folder,
        prepared.config,
        prepared.compiler(),
    )


def _copies_little(model: ov.Model, folder: ModelFolder) -> bool:
    """Whether the recurrent states of an exported model are small relative to its weights."""
    return recurrent_bytes(model) <= MOST_COPIED * folder.num_bytes


def _require_fast(model: ov.Model) -> None:
    """Raise `ModelError` for a paged model that is slower on CPU than the stateful one."""
    if has_delta_rule(model):
        raise ModelError("passes on a paged KV cache take longer: OpenVINO's gated delta rule")


def _choose_backend(
    source: ModelSource, device: Device, kv: KvBackend, max_length: int | None
) -> tuple[Backend, str, ov.Model]:
    """The backend, the reason for it, and the model in its form."""
    if kv == "stateful":
        return "stateful", AS_ASKED, source.model
    if not device.takes_paged:
        if kv == "paged":
            require_paged(device)
        return "stateful", f"{NOT_PAGED} {device.name}", source.model
    num_windowed = count_windowed(source.model)
    try:
        require_whole(source, max_length or source.folder.context_length)
        to_paged(source.model)
        require_windows(source.model, num_windowed)
        if kv == "auto" and device.is_cpu:
            _require_fast(source.model)
    except ModelError as error:
        if kv == "paged":
            raise
        # The attempt may have changed the model partly.
        return "stateful", str(error), read_ir(source.folder)
    if device.is_cpu:  # a GPU does not quantize keys by token, and its plugin fuses products itself
        center_keys(source.model)
        fuse_qkv(source.model)
    return (
        "paged",
        AS_ASKED if kv == "paged" else FREE_ROLLBACK,
        source.model,
    )
