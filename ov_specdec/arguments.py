"""Checks of the arguments of a pipeline and its methods."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from ov_specdec.checks import (
    require_choice,
    require_int,
    require_number,
    require_text,
    require_texts,
)
from ov_specdec.description import describe
from ov_specdec.drafters.factory import DrafterKind, DrafterName, kind_of
from ov_specdec.engine import Limits
from ov_specdec.errors import Option, OptionError, shorten
from ov_specdec.files import expand_home
from ov_specdec.loading.devices import find_device, openvino_core, require_paged
from ov_specdec.loading.generation_config import SamplingDefaults, defaults_of
from ov_specdec.loading.locate import check_place
from ov_specdec.loading.runtime_config import RuntimeConfig
from ov_specdec.options import GenerationOptions
from ov_specdec.text.pairing import PairingName
from ov_specdec.text.text_to_text import TextToText


def check_devices(configs: Sequence[RuntimeConfig]) -> None:
    """Refuse, before models are read, settings that their devices do not support.

    configs: the main model's first. Raises `DeviceError` and `OptionError`.
    """
    main = configs[0]
    _make_cache_dir(main.cache_dir)
    encoders = [replace(c, device=c.encoder_device, kv="auto") for c in configs if c.encoder_device]
    devices = []
    for config in (*configs, *encoders):
        device = find_device(openvino_core(), config.device)
        devices.append(device)
        config.properties_for(device)
        if config.kv == "paged":
            require_paged(device)
    device = devices[0]
    if not device.is_cpu and not isinstance(main.static_shapes, str):
        raise OptionError(
            Option("static_shapes", list(main.static_shapes)),
            f" cannot be used on {device.name}, which does not run a paged KV cache with static "
            "shapes: leave it out",
        )
    if main.num_threads is not None and not any(own.is_cpu for own in devices):
        raise OptionError(
            Option("num_threads", main.num_threads),
            f" has no effect on {device.name}: leave it out, or run a model on CPU",
        )


def _make_cache_dir(cache_dir: str | Path | None) -> None:
    """Make the folder for compiled models; OpenVINO would fail later, with a vague message."""
    if cache_dir is None:
        return
    try:
        expand_home(cache_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            Option("cache_dir", str(cache_dir)),
            f" cannot be made ({error.strerror}): give another folder",
        ) from error


def may_tune(profile: str | Path, main: RuntimeConfig, draft: RuntimeConfig) -> bool:
    """Whether a profile may set properties: not if the caller set them."""
    is_free = main.precision == "default" and not main.properties and main.num_threads is None
    if is_free and not draft.properties and draft.device == main.device:
        return True
    if profile not in ("auto", "none"):
        raise OptionError(
            Option("profile", str(profile)),
            " has no effect where ",
            Option("precision"),
            ", ",
            Option("properties"),
            ", ",
            Option("num_threads"),
            " or ",
            Option("draft_device"),
            " are given: leave out one of the two",
        )
    return False


def check_limits(
    max_batch_size: int, kv_cache_size: float | None, max_prefill_tokens_per_step: int | None
) -> Limits:
    """The limits of concurrency; `OptionError` for invalid numbers."""
    require_int("max_batch_size", max_batch_size, low=1)
    if kv_cache_size is not None:
        require_number("kv_cache_size", kv_cache_size, low=0.0)
    if max_prefill_tokens_per_step is None:
        return Limits(max_batch_size)
    require_int("max_prefill_tokens_per_step", max_prefill_tokens_per_step, low=1)
    return Limits(max_batch_size, max_prefill_tokens_per_step)


def usual_drafter(main: str | Path | None, draft: str | Path | None) -> DrafterName:
    """The default drafter: the draft model, if there is one."""
    return "model" if main is None or draft is not None else "suffix"


def check_drafter(
    drafter: str | DrafterKind | None,
    main: str | Path | None,
    draft: str | Path | None,
    draft_device: str | None,
    draft_properties: Mapping[str, str] | None,
    pairing: PairingName | None,
    profile: str | Path = "auto",
) -> DrafterKind:
    """The drafter; `OptionError` if its model is missing, or an argument has no effect with it.

    drafter: None takes `usual_drafter`. `ModelError` for a model that does not exist.
    """
    if drafter is None:
        drafter = usual_drafter(main, draft)
    if not isinstance(drafter, DrafterKind):
        require_choice("drafter", drafter, get_args(DrafterName))
    kind = kind_of(drafter)
    if pairing is not None:
        require_choice("pairing", pairing, get_args(PairingName))
    if draft_device is not None:
        require_text("draft_device", draft_device)
    if draft_properties is not None:
        require_texts("draft_properties", draft_properties)
    for name, model in (("main", main), ("draft", draft)):
        if model is not None and not isinstance(model, str | Path):
            raise OptionError(Option(name, model), " must be a folder or a name on the Hub")
    if kind.has_draft_model and main is not None and draft is None:
        raise _no_draft(main)
    if not isinstance(profile, str | Path):
        raise OptionError(Option("profile", profile), " must be 'auto', 'none' or a file")
    given = (
        ("draft", draft),
        ("draft_device", draft_device),
        ("draft_properties", draft_properties),
        ("pairing", pairing),
        ("profile", None if profile in ("auto", "none") else str(profile)),
    )
    for name, value in given:
        if value and not kind.has_draft_model:
            raise OptionError(
                Option(name, value),
                " has no effect with ",
                Option("drafter", kind.name),
                ": leave it out",
            )
    return kind


def _no_draft(main: str | Path) -> OptionError:
    """The error of a missing draft model; `ModelError` if the main model does not exist."""
    check_place(main)
    return OptionError(
        "no draft model for ",
        Option("main", str(main)),
        ": give ",
        Option("draft"),
        ", or choose ",
        Option("drafter", "suffix"),
        " or ",
        Option("drafter", "none"),
    )


def refuse_unnamed(options: Sequence[object]) -> None:
    """Refuse options of a generation without a name."""
    if options:
        raise OptionError(
            f"{shorten(options[0])} has no name: options are given by name, such as "
            "max_new_tokens=64, and a GenerationConfig as generation_config"
        )


def complete(
    given: Mapping[str, Any], defaults: SamplingDefaults, text_to_text: TextToText | None
) -> GenerationOptions:
    """The options of a generation with defaults for the others, and without a generation_config.

    given: None counts as not given where the option does not take it, as in transformers.
    """
    described = describe(GenerationOptions)
    own = {
        name: value
        for name, value in given.items()
        if value is not None or name not in described or described[name].takes_none
    }
    if (config := own.pop("generation_config", None)) is not None:
        start = text_to_text.decoder_start_token_id if text_to_text else None
        defaults = defaults_of(config, own, start)
    return GenerationOptions.from_kwargs(defaults.complete(own))


def check_batch(
    prompts: Sequence[Any], options: Sequence[Mapping[str, Any]] | None
) -> Sequence[Mapping[str, Any]]:
    """The options of each prompt of a batch; `OptionError` for other types, or another number."""
    if not _is_list(prompts) or any("role" in p for p in prompts if isinstance(p, Mapping)):
        raise OptionError(
            Option("prompts", prompts),
            " must be a list of prompts: of texts, of lists of ids, or of lists of messages",
        )
    if options is None:
        return [{} for _ in prompts]
    if not _is_list(options):
        raise OptionError(
            Option("options", options),
            " must be a list of mappings, one for each prompt: give what they share by name",
        )
    if len(options) != len(prompts):
        raise OptionError(f"{len(options)} options were given for {len(prompts)} prompts")
    return options


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
