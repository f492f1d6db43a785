"""From a model as read to a session: KV backend, properties, compilation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import openvino as ov

from ov_specdec.checks import require_choice, require_int
from ov_specdec.devices import Device, Precision, find_device, precision_properties
from ov_specdec.errors import DeviceError, ModelError, reason
from ov_specdec.paged import PagedModel, PagedSession, to_paged
from ov_specdec.session import Session
from ov_specdec.source import ModelSource, read_ir
from ov_specdec.stateful import MAX_HIDDEN, StatefulSession, sequence_axes

Backend = Literal["paged", "stateful"]
KvBackend = Literal["auto", "paged", "stateful"]


@dataclass(frozen=True)
class RuntimeConfig:
    """How a model is to be compiled: OpenVINO device, KV backend, precision, extra properties.

    max_hidden_tokens: see `StatefulSession`; None takes its default.
    """

    device: str = "CPU"
    kv: KvBackend = "auto"
    precision: Precision = "default"
    properties: Mapping[str, str] | None = None
    max_hidden_tokens: int | None = None

    def __post_init__(self) -> None:
        require_choice("kv", self.kv, get_args(KvBackend))
        require_choice("precision", self.precision, get_args(Precision))
        if self.max_hidden_tokens is not None:
            require_int("max_hidden_tokens", self.max_hidden_tokens, low=0)


@dataclass(frozen=True)
class LoadedModel:
    """A session, the KV backend it runs on, and why it is that one."""

    session: Session
    kv: Backend
    why: str


def load_model(source: ModelSource, config: RuntimeConfig, *, vocab_size: int) -> LoadedModel:
    """Compile a model on the device and the KV backend that `config` asks for.

    Logits beyond `vocab_size` columns are cut off. The source's IR may be changed on the way.
    Raises `DeviceError` for what the device does not offer, `ModelError` for a model whose KV cache
    cannot be rolled back.
    """
    core = ov.Core()
    device = find_device(core, config.device)
    properties = {**precision_properties(device, config.precision), **(config.properties or {})}
    axes = sequence_axes(source.model)
    max_length = source.folder.context_length

    kv, why, model = _choose_backend(source, device, config.kv)
    compiled = _compile(core, source, model, device, properties)
    if kv == "paged":
        paged = PagedModel(compiled, max_length=max_length, vocab_size=vocab_size)
        return LoadedModel(PagedSession(paged), kv, why)
    max_hidden = MAX_HIDDEN if config.max_hidden_tokens is None else config.max_hidden_tokens
    session = StatefulSession(
        compiled,
        axes,
        max_length=max_length,
        vocab_size=vocab_size,
        # In a sliding window, hidden entries would take the places of visible ones.
        max_hidden=0 if source.folder.sliding_window else max_hidden,
    )
    return LoadedModel(session, kv, why)


def _choose_backend(
    source: ModelSource, device: Device, kv: KvBackend
) -> tuple[Backend, str, ov.Model]:
    """The backend, the reason for it, and the model in the form that it takes."""
    if kv == "stateful":
        return "stateful", "as asked for", source.model
    if not device.takes_paged:
        why = f"a paged KV cache runs on CPU only, not on {device.name}"
        if kv == "paged":
            raise DeviceError(f"{why}: use kv='stateful'")
        return "stateful", why, source.model
    try:
        to_paged(source.model)
    except ModelError as error:
        if kv == "paged":
            raise
        # The attempt may have left the model half changed.
        return "stateful", str(error), read_ir(source.folder)
    return "paged", "as asked for" if kv == "paged" else "rollback is free", source.model


def _compile(
    core: ov.Core, source: ModelSource, model: ov.Model, device: Device, properties: dict[str, str]
) -> ov.CompiledModel:
    try:
        return core.compile_model(model, device.name, properties)
    except RuntimeError as error:
        settings = ", ".join(f"{key}={value}" for key, value in properties.items()) or "defaults"
        raise DeviceError(
            f"{source.folder.path} does not compile for {device.name} with {settings} "
            f"({reason(error)}): check the properties, or try another kv or precision"
        ) from error
