"""Finds a configuration in which the passes of a main model are batch-invariant."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ov_specdec.checks.invariance import Invariance, describe, read_verdict
from ov_specdec.errors import DeviceError, Option, OptionError
from ov_specdec.models.budgets import limit_memory
from ov_specdec.models.compile import LoadedModel, fingerprint, load_model
from ov_specdec.models.devices import Precision, find_device, openvino_core
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.models.source import open_source
from ov_specdec.records.files import record_file
from ov_specdec.results.stats import BatchInvariance

WantedInvariance = bool | Literal["auto"]

SLOWER: tuple[Precision, ...] = ("f32", "exact")
"""Precisions that True tries if the default one does not pass: the faster one first."""


def configure(
    wanted: WantedInvariance,
    folder: ModelFolder,
    config: RuntimeConfig,
    others: Sequence[Precision],
) -> tuple[RuntimeConfig, BatchInvariance | None]:
    """The configuration with which passes of a main model are invariant; or why there is none.

    others: precisions that may replace the configured one for batch_invariant=True. They are loaded
    and checked unless the result is known. Raises `OptionError` if that is impossible with these
    settings, and `DeviceError` if no precision passes.
    """
    if wanted is False:
        return config, BatchInvariance(False, "batch_invariant=False")
    if reason := _obstacle(folder, config):
        if wanted is True:
            raise OptionError(
                Option("batch_invariant", True), f" is not possible with {reason}: use 'auto'"
            )
        return config, BatchInvariance(False, reason)
    on = replace(config, batch_invariant=True)
    if wanted is True:
        return _first_that_passes(folder, on, others), None
    known = describe(read_verdict(verdict_file(folder, on)))
    return (on, None) if known.is_on else (config, known)


def look_up(folder: ModelFolder, config: RuntimeConfig) -> BatchInvariance:
    """The result of "auto" for a model that is not loaded."""
    config, off = configure("auto", folder, config, ())
    return off or describe(read_verdict(verdict_file(folder, config)))


def open_invariance(loaded: LoadedModel, off: BatchInvariance | None = None) -> Invariance:
    """The invariance of a loaded main model. off: why it was not compiled for it."""
    if off is None and loaded.kv == "stateful":
        off = BatchInvariance(False, f"a stateful KV cache ({loaded.reason})")
    return Invariance(loaded.runner, verdict_file(loaded.folder, loaded.config), off)


def verdict_file(folder: ModelFolder, config: RuntimeConfig) -> Path | None:
    """The cached verdict on a configuration; None for a user without a cache folder."""
    return record_file(fingerprint(folder, config, "paged"))


def _obstacle(folder: ModelFolder, config: RuntimeConfig) -> str:
    """The obstacle to invariant passes; "" if a check decides."""
    device = find_device(openvino_core(), config.device)
    if folder.is_encoder_decoder:
        return "an encoder-decoder model"
    if not device.is_cpu:
        return f"device {device.name}"
    mode = config.properties_for(device).get("KEY_CACHE_QUANT_MODE")
    if config.kv == "stateful":
        return "a stateful KV cache"
    return "" if mode == "BY_TOKEN" else f"KEY_CACHE_QUANT_MODE={mode}"


def _first_that_passes(
    folder: ModelFolder, config: RuntimeConfig, others: Sequence[Precision]
) -> RuntimeConfig:
    differences = []
    slower = [replace(config, precision=other, properties=None) for other in others]
    for candidate in (config, *slower):
        verdict = read_verdict(verdict_file(folder, candidate))
        difference = check(folder, candidate) if verdict is None else verdict.difference
        if not difference:
            return candidate
        differences.append(f"{candidate.precision}: {difference}")
    raise DeviceError(
        Option("batch_invariant", True),
        f" is not possible for {folder.path} on this machine, where logits differ "
        f"({'; '.join(differences)}): use ",
        Option("batch_invariant", "auto"),
    )


def check(folder: ModelFolder, config: RuntimeConfig) -> str:
    """The first difference with this configuration; "" if there is none. Caches the verdict."""
    source = open_source(folder.path)
    try:
        loaded = load_model(source, config, vocab_size=source.vocab_size)
        limit_memory([loaded], None, 4)  # a check has five sequences, four of them short
        status = open_invariance(loaded).check()
    except DeviceError as error:
        return str(error)
    return "" if status.is_verified else status.reason
