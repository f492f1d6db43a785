"""Checks of the arguments of a pipeline's methods, and of its devices."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ov_specdec.errors import Option, OptionError, shorten
from ov_specdec.models.devices import find_device, require_paged
from ov_specdec.models.generation_config import defaults_of, fill
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.records.files import expand_home
from ov_specdec.text.prompt import TextToText


def check_devices(configs: Sequence[RuntimeConfig]) -> None:
    """Refuse, before models are read, settings that their devices do not support.

    configs: the main model's first. Raises `DeviceError` and `OptionError`.
    """
    main = configs[0]
    if main.cache_dir is not None:  # OpenVINO would fail later, with a vague message
        try:
            expand_home(main.cache_dir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(
                Option("cache_dir", str(main.cache_dir)),
                f" cannot be made ({error.strerror}): give another folder",
            ) from error
    encoders = [replace(c, device=c.encoder_device, kv="auto") for c in configs if c.encoder_device]
    devices = []
    for config in (*configs, *encoders):
        device = find_device(config.device)
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


def complete(
    options: GenerationOptions | None,
    named: Mapping[str, Any],
    defaults: Mapping[str, Any],
    text_to_text: TextToText | None,
) -> GenerationOptions:
    """The options of a generation with defaults for the others, and without a generation_config.

    named: others by name, of which None counts as not given, as in transformers.
    """
    own = {
        name: value
        for name, value in named.items()
        if value is not None or name not in GenerationOptions.model_fields
    }
    if options is not None:
        if not isinstance(options, GenerationOptions):
            raise OptionError(
                f"{shorten(options)} has no name: options are given by name, such as "
                "max_new_tokens=64, and a GenerationConfig as generation_config"
            )
        options = options.model_copy(update=own) if own else options
        given = {name: getattr(options, name) for name in options.model_fields_set}
        return options.copy_with(**fill(given, defaults))
    if (config := own.pop("generation_config", None)) is not None:
        start = text_to_text.decoder_start_token_id if text_to_text else None
        defaults = defaults_of(config, own, start)
    return GenerationOptions(**fill(own, defaults))


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
