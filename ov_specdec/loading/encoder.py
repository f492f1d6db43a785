"""Loads the encoders of encoder-decoder models; main and draft share equal ones."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import openvino as ov

from ov_specdec.errors import DeviceError, ModelError, Option, OptionError
from ov_specdec.loading.devices import Device, compile_for, find_device, openvino_core
from ov_specdec.loading.runtime_config import RuntimeConfig
from ov_specdec.loading.source import ModelSource, read_model
from ov_specdec.runner.encoder import ATTENTION_MASK, Encoder
from ov_specdec.runner.encoder_decoder import HIDDEN_STATES

READS = {"input_ids", "input_features"}
"""Possible inputs of an encoder: a text or a recording."""

PART = 2**24
"""Bytes of weights in one read."""


@dataclass(frozen=True)
class _Prepared:
    """An encoder ready to compile."""

    path: Path
    model: ov.Model
    device: Device
    properties: Mapping[str, str]

    def compile(self) -> ov.CompiledModel | DeviceError:
        """The compiled model, or the error if the device does not support it."""
        return compile_for(self.device, self.model, self.properties, self.path)


def load_encoders(models: Sequence[tuple[ModelSource, RuntimeConfig]]) -> list[Encoder | None]:
    """Compile the encoders of a main model and of its draft, if any; None for decoder-only models.

    A draft shares the main model's encoder if its folder has none, or one with the same weights.
    Raises `ModelError` if the main model has none, and if a decoder does not fit the encoder's
    hidden states; `DeviceError` if a device does not support one.
    """
    (main, config), *drafts = models
    if not main.folder.is_encoder_decoder:
        if config.encoder_device is not None:
            raise OptionError(
                Option("encoder_device", config.encoder_device),
                f" has no effect with {main.folder.path}, which is a decoder: leave it out",
            )
        return [None] * len(models)
    own = [_prepare(main, config)]
    own += [_prepare(*draft) for draft in drafts if not _has_encoder_of(main, draft[0])]
    # Nothing but compilation: see `load_models`.
    with ThreadPoolExecutor() as pool:
        compiled = list(pool.map(_Prepared.compile, own))
    encoders: list[Encoder | None] = []
    for model in compiled:
        if isinstance(model, DeviceError):
            raise model
        encoders.append(Encoder(model))
    shared = [encoders[0], *(encoders[-1] for _ in drafts)]
    for (source, _), encoder in zip(models, shared, strict=True):
        _require_fit(source, encoder)
    return shared


def _prepare(source: ModelSource, config: RuntimeConfig) -> _Prepared:
    """Read an encoder; `ModelError` if its input is neither a text nor a recording."""
    path = source.folder.encoder_ir
    if not path.is_file():
        raise ModelError(f"{path} is missing: export the model again")
    model = read_model(path)
    inputs = {port.any_name for port in model.inputs} - {ATTENTION_MASK}
    if len(inputs) != 1 or not inputs <= READS:
        raise ModelError(
            f"{path} reads {', '.join(sorted(inputs))}, which is neither a text nor a recording: "
            "use a model for text or speech"
        )
    device = find_device(openvino_core(), config.encoder_device or config.device)
    return _Prepared(path, model, device, config.properties_for(device))


def _has_encoder_of(main: ModelSource, draft: ModelSource) -> bool:
    """Whether a draft shares the main model's encoder: the same weights, or none in its folder."""
    path = draft.folder.encoder_ir
    return not path.is_file() or _digest(path) == _digest(main.folder.encoder_ir)


def _digest(path: Path) -> bytes:
    """Digest of the weights of an IR; empty if they are missing, which reading will report."""
    digest, weights = hashlib.sha256(), path.with_suffix(".bin")
    if weights.is_file():
        with weights.open("rb") as file:
            while part := file.read(PART):
                digest.update(part)
    return digest.digest()


def _require_fit(source: ModelSource, encoder: Encoder | None) -> None:
    width = source.model.input(HIDDEN_STATES).partial_shape[-1]
    if encoder is not None and width.is_static and width.get_length() != encoder.width:
        raise ModelError(
            f"the decoder in {source.folder.path} takes hidden states of size "
            f"{width.get_length()}, the encoder gives {encoder.width}: put the draft's own "
            "encoder into its folder"
        )
