"""Loads encoders, which main and draft share if they are equal, and aligners for word times."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from filecmp import cmp
from functools import partial

import openvino as ov

from ov_specdec.errors import DeviceError, ModelError, Option, OptionError
from ov_specdec.graph.alignment import Heads, give_weights
from ov_specdec.models.devices import compile_for, find_device, openvino_core
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.models.source import ModelSource, read_ir, read_model
from ov_specdec.runner.encoder_decoder import ATTENTION_MASK, HIDDEN_STATES, Aligner, Encoder

READS = {"input_ids", "input_features"}
"""Possible inputs of an encoder: a text or a recording."""


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
        compiled = list(pool.map(lambda compile_: compile_(), own))
    encoders = [Encoder(_require_compiled(model)) for model in compiled]
    shared = [encoders[0], *(encoders[-1] for _ in drafts)]
    for (source, _), encoder in zip(models, shared, strict=True):
        width = source.model.input(HIDDEN_STATES).partial_shape[-1]
        if width.is_static and width.get_length() != encoder.width:
            raise ModelError(
                f"the decoder in {source.folder.path} takes hidden states of size "
                f"{width.get_length()}, the encoder gives {encoder.width}: put the draft's own "
                "encoder into its folder"
            )
    return [*shared]


def _require_compiled(model: ov.CompiledModel | DeviceError) -> ov.CompiledModel:
    if isinstance(model, DeviceError):
        raise model
    return model


def _prepare(
    source: ModelSource, config: RuntimeConfig
) -> Callable[[], ov.CompiledModel | DeviceError]:
    """What compiles an encoder; `ModelError` if its input is neither a text nor a recording."""
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
    return partial(compile_for, device, model, config.properties_for(device), path)


def _has_encoder_of(main: ModelSource, draft: ModelSource) -> bool:
    """Whether a draft shares the main model's encoder: the same weights, or none in its folder."""
    path = draft.folder.encoder_ir
    one, other = (ir.with_suffix(".bin") for ir in (path, main.folder.encoder_ir))
    # Reading an encoder reports weights that are missing.
    is_same = one.is_file() and other.is_file() and cmp(one, other, shallow=False)
    return not path.is_file() or is_same


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
    device = find_device(openvino_core(), config.device)
    compiled = compile_for(device, model, config.properties_for(device), folder.ir)
    return Aligner(_require_compiled(compiled), encoder)
