"""Prepares a model for compilation: its KV backend, its graph, and its runner."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import openvino as ov

from ov_specdec.errors import DeviceError, ModelError, OptionError
from ov_specdec.graph.attention import has_mask_table, lost_cap, require_windows, windows
from ov_specdec.graph.hidden_states import add_hidden_states
from ov_specdec.graph.paging import (
    choose_factors,
    has_delta_rule,
    recurrent_state,
    select_rows,
    sequence_axes,
    static_shape,
    to_paged,
    uses_positions,
)
from ov_specdec.graph.products import center_keys, cut_vocabulary, fuse_qkv
from ov_specdec.models.devices import NOT_PAGED, Backend, RuntimeConfig, block_memory, compile_model
from ov_specdec.models.exported import ExportedModel, read_ir, read_model
from ov_specdec.runner.base import Runner
from ov_specdec.runner.encoder_decoder import EncoderDecoderModel
from ov_specdec.runner.paged import PagedModel
from ov_specdec.runner.stateful import MAX_MASKED, StatefulModel

OWN_STATES = "past_key_values"
"""Prefix of states with a sequence's own keys and values, if other states hold the encoder's."""

COMPILE_OPTIONS = {"SNIPPETS_MODE": "DISABLE"}
"""Properties that disable generated code for element-wise operations: each static shape of the
embedded main model takes 8 MB less, and passes take the same time."""

CompileShape = Callable[[int], Callable[[], ov.CompiledModel]]
"""Makes the graph for passes over a number of tokens, and returns what compiles it."""


@dataclass(frozen=True)
class Prepared:
    """A model ready to compile. make_runner: of it, and of an `encoder` where it has one."""

    exported: ExportedModel
    config: RuntimeConfig
    kv: Backend
    reason: str
    make_runner: Callable[..., Runner]

    @property
    def may_fall_back(self) -> bool:
        """Whether another KV backend may be tried; a stateful one has no static shapes."""
        if self.kv != "paged" or self.config.kv != "auto" or self.config.static_sizes:
            return False
        return self.config.has_readable_states

    def compile(self) -> ov.CompiledModel:
        """The compiled model; `DeviceError` if that fails."""
        return compile_model(self.exported.model, self.config, self.exported.folder.path)

    def compiler(self) -> CompileShape | None:
        """Compiles its static shapes; None on a GPU, which fails to run them.

        Models with a gated delta rule have none, so "auto" does not try.
        """
        config, model, path = self.config, self.exported.model, self.exported.folder.path
        if config.static_shapes == "none" or self.kv != "paged" or not config.target.is_cpu:
            return None
        if config.static_shapes == "auto" and has_delta_rule(model):
            return None
        return lambda size: partial(
            compile_model, static_shape(model, size), config, path, **COMPILE_OPTIONS
        )


def prepare(exported: ExportedModel, config: RuntimeConfig) -> Prepared:
    """Choose the KV backend of a model, and change its graph for it; raises for what cannot be."""
    folder = exported.folder
    context, max_length = folder.context_length, config.max_model_len or folder.context_length
    if max_length > context:
        problem = f"{{max_model_len}} is more than the context of {folder.path}, {context} tokens"
        raise OptionError(f"{problem}: lower it", max_model_len=max_length)
    make = _prepare_encoder_decoder if folder.is_encoder_decoder else _prepare_decoder
    prepared = make(exported, config, max_length)
    model, is_paged = prepared.exported.model, prepared.kv == "paged"
    if not is_paged:
        _check_stateful(config, prepared.reason)
    select_rows(model, axis=0 if is_paged else 1)
    if config.kept_tokens is not None:
        cut_vocabulary(model, sorted(config.kept_tokens))
    length = folder.original_length
    if length is not None and not choose_factors(model, length):
        problem = (
            f"{folder.path}/config.json has other factors for texts of more than {length} tokens "
            "(LongRoPE), but its graph does not select them"
        )
        limit = (
            f"set max_position_embeddings in config.json to {length} to use it for shorter texts"
        )
        raise ModelError(f"{problem}: export the model again with ov-specdec export, or {limit}")
    return prepared


def _prepare_decoder(exported: ExportedModel, config: RuntimeConfig, max_length: int) -> Prepared:
    folder, device = exported.folder, config.target
    state = recurrent_state(exported.model)
    if lost := lost_cap(exported.model, folder.attention_cap):
        warnings.warn(f"{folder.path}: {lost}", RuntimeWarning, stacklevel=2)
    max_masked = _max_masked(exported, config)
    _give_states(exported.model, config)
    kv, reason, model = choose_backend(exported, config, max_length)
    if state is not None and not device.is_cpu:
        problem = f"{folder.path} has recurrent states ('{state}'), which have not been run on"
        raise DeviceError(f"{problem} {device.name}: use {{device}}", device="CPU")
    common: dict[str, Any] = {"max_length": max_length, "vocab_size": exported.vocab_size}
    common["original_context"] = folder.original_length
    make_runner: Callable[..., Runner]
    if kv == "stateful":
        make_runner = partial(
            StatefulModel,
            axes=sequence_axes(model),
            max_masked=max_masked,
            shares_states=device.is_cpu,
            is_recurrent=state is not None,
            **common,
        )
        if state is not None:
            reason = f"{reason}; its recurrent states cannot be rolled back: nothing is drafted"
    elif config.max_masked_tokens is not None:
        given = {"max_masked_tokens": config.max_masked_tokens, "kv": "stateful"}
        problem = f"{{max_masked_tokens}} has no effect on {folder.path}, whose KV cache is paged"
        raise OptionError(problem + ": leave it out, or add {kv}", **given)
    else:
        memory, is_invariant = block_memory(device), config.batch_invariant
        make_runner = partial(PagedModel, memory=memory, is_invariant=is_invariant, **common)
    exported = replace(exported, model=model)
    return Prepared(exported, config, kv, reason, make_runner)


def choose_backend(
    exported: ExportedModel, config: RuntimeConfig, max_length: int
) -> tuple[Backend, str, ov.Model]:
    """The paged backend if it is correct and fast, else the stateful one; why; and its model.

    May change the graph that was read. max_length: maximum tokens of a sequence. Raises
    `DeviceError` and `ModelError` if kv="paged" is not possible.
    """
    model, folder, device = exported.model, exported.folder, config.target
    if config.kv == "stateful":
        return "stateful", config.kv_reason, model
    if not device.supports_paged:
        return "stateful", f"{NOT_PAGED} {device.name}", model
    try:
        if folder.chunk is not None and folder.chunk < max_length:
            # OpenVINO's transformation drops chunks.
            chunks = f"chunks of {folder.chunk} tokens, which a paged KV cache does not support"
            problem, remedy = f"this model attends in {chunks}", "use {kv}, or {max_model_len}"
            given: dict[str, Any] = {"kv": "stateful", "max_model_len": folder.chunk}
            raise ModelError(f"{problem}: {remedy}", **given)
        num_windowed = len(windows(model))
        to_paged(model)
        require_windows(model, num_windowed)
        if config.kv == "auto" and device.is_cpu and has_delta_rule(model):
            raise ModelError("passes on a paged KV cache take longer: OpenVINO's gated delta rule")
    except ModelError as error:
        if config.kv == "paged":
            raise
        # The attempt may have changed the model partly.
        return "stateful", str(error), _give_states(read_ir(folder), config)
    if device.is_cpu:  # a GPU does not quantize keys by token, and its plugin fuses products itself
        center_keys(model)
        fuse_qkv(model)
    reason = "drops rejected draft tokens at no cost" if config.kv == "auto" else config.kv_reason
    return "paged", reason, model


def _give_states(model: ov.Model, config: RuntimeConfig) -> ov.Model:
    """The same decoder, which also gives hidden states if a draft model reads them."""
    if config.projection is None:
        return model
    if (state := recurrent_state(model)) is not None:
        raise ModelError(
            f"the draft model reads hidden states, which a model with recurrent states ('{state}') "
            "does not give: use another draft, or another drafter"
        )
    if not config.target.is_cpu:
        raise DeviceError(
            f"the draft model reads hidden states, which has not been run on {config.device}: use "
            "{device}",
            device="CPU",
        )
    add_hidden_states(model, read_model(config.projection))
    return model


def _max_masked(exported: ExportedModel, config: RuntimeConfig) -> int:
    folder, model = exported.folder, exported.model
    # Masked entries would displace others in a window, chunk or table of masks, and shift
    # positions that are not an input.
    sizes = (folder.sliding_window, folder.chunk, *windows(model))
    is_local = any(size and size < folder.context_length for size in sizes)
    if is_local or has_mask_table(model) or not uses_positions(model):
        return 0
    if config.max_masked_tokens is not None:
        return config.max_masked_tokens
    return MAX_MASKED if config.target.is_cpu else 0  # a GPU once read masked entries


def _prepare_encoder_decoder(
    exported: ExportedModel, config: RuntimeConfig, max_length: int
) -> Prepared:
    """The decoder of an encoder-decoder model, whose states are trimmed at once."""
    model = f"{exported.folder.path}, an encoder-decoder model"
    if config.projection is not None:
        raise ModelError(
            f"the draft model reads hidden states, which {model}, does not give: use another draft"
        )
    if config.kv == "paged":
        problem = f"{{kv}} cannot be used with {model}"
        raise OptionError(f"{problem}: leave it out", kv="paged")
    if config.max_masked_tokens:
        problem = (
            f"{{max_masked_tokens}} cannot be used with {model}, whose KV cache is always trimmed"
        )
        raise OptionError(f"{problem}: leave it out", max_masked_tokens=config.max_masked_tokens)
    axes = sequence_axes(exported.model, OWN_STATES)
    if not axes:
        remedy = "export the model again with optimum-intel 2.1 or later"
        raise ModelError(f"{exported.folder.ir} has no states '{OWN_STATES}': {remedy}")
    make_runner = partial(
        EncoderDecoderModel, axes=axes, max_length=max_length, vocab_size=exported.vocab_size
    )
    return Prepared(exported, config, "stateful", "an encoder-decoder model", make_runner)


def _check_stateful(config: RuntimeConfig, reason: str) -> None:
    """Refuse settings that a stateful KV cache does not support."""
    if config.static_sizes:
        needs = "{static_shapes} needs a paged KV cache, and the main model's is stateful"
        raise OptionError(f"{needs} ({reason}): leave it out", static_shapes=config.static_sizes)
    if not config.has_readable_states:
        chosen = config.openvino_properties()["KV_CACHE_PRECISION"]
        problem = f"KV_CACHE_PRECISION={chosen} cannot be used with a stateful KV cache on"
        device = f"{config.target.name}, whose states could not be read"
        raise DeviceError(f"{problem} {device}: leave it out")
