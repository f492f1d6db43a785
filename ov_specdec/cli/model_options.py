"""Options of models: how commands declare them, and the arguments of a pipeline."""

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from ov_specdec.drafters.factory import DrafterName
from ov_specdec.engine import Limits
from ov_specdec.errors import OptionError
from ov_specdec.loading.devices import Precision
from ov_specdec.loading.generation_config import GenerationConfigUse
from ov_specdec.loading.invariance import WantedInvariance
from ov_specdec.loading.runtime_config import KvBackend
from ov_specdec.loading.static_shapes import WantedShapes, check_sizes
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.text.pairing import PairingName

MODEL_OPTIONS = (
    click.option("--main", metavar="DIR", help="Main model: a folder or Hub name. [embedded]"),
    click.option(
        "--draft",
        metavar="DIR",
        help="Draft model: a folder or Hub name. [embedded]",
    ),
)

OUTPUT_OPTION = click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("models"),
    show_default=True,
    help="Parent folder of the exported model folders.",
)

DEVICE_OPTION = click.option("--device", default="CPU", show_default=True, help="OpenVINO device.")

PROFILE_OPTION = click.option(
    "--profile",
    metavar="auto|none|FILE",
    default="auto",
    show_default=True,
    help="Use settings that ov-specdec tune found for these models on this machine.",
)

COMPILE_OPTIONS = (
    click.option(
        "--precision",
        type=click.Choice(get_args(Precision)),
        default="default",
        show_default=True,
        help="Precision of computation; exact: f32, with only weights quantized.",
    ),
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set an OpenVINO property of both models; repeatable.",
    ),
)

LOADING_OPTIONS = (
    click.option("--draft-device", help="Device of the draft model. [the main model's]"),
    click.option(
        "--encoder-device",
        help="Device of the encoder of encoder-decoder models. [the model's]",
    ),
    click.option(
        "--num-threads", type=int, metavar="N", help="CPU threads of each model. [OpenVINO decides]"
    ),
    click.option(
        "--cache-dir",
        metavar="DIR",
        help="Cache compiled models in this folder, for faster starts.",
    ),
)
"""Devices and loading of models, for text and speech."""

DRAFT_PROPERTY_OPTION = click.option(
    "--draft-property",
    "draft_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set an OpenVINO property of the draft model only, over --property; repeatable.",
)

PAIRING_OPTION = click.option(
    "--pairing",
    type=click.Choice(get_args(PairingName)),
    help="Pair models with different tokenizers. intersection: draft only common tokens; "
    "retokenize: encode the draft's text again; auto: choose by sample texts. [refuse such a "
    "draft]",
)

BATCH_INVARIANT_OPTION = click.option(
    "--batch-invariant",
    type=click.Choice(["auto", "true", "false"]),
    default="auto",
    show_default=True,
    help="Run passes in a form that gives each token the same logits, to the bit, at any draft "
    "length and concurrency. auto: if this machine can; true: fail if it cannot; false: never, "
    "slightly faster.",
)

RUNTIME_OPTIONS = (
    PAIRING_OPTION,
    DEVICE_OPTION,
    *LOADING_OPTIONS,
    click.option(
        "--kv",
        type=click.Choice(get_args(KvBackend)),
        default="auto",
        show_default=True,
        help="Type of KV cache; auto: paged if the model and device support it.",
    ),
    click.option(
        "--max-hidden-tokens",
        type=int,
        metavar="N",
        help="With --kv stateful: maximum rejected tokens that stay masked in the KV cache before "
        "a trim; 0: trim after every rejection. [128]",
    ),
    click.option(
        "--kv-cache-size",
        type=float,
        metavar="GB",
        help="Maximum memory in GB for the KV caches of both models, on each device. [enough "
        "for --max-batch-size, at most half of the free memory]",
    ),
    click.option(
        "--max-model-len",
        type=int,
        metavar="N",
        help="Maximum tokens of prompt and output together. [the main model's context]",
    ),
    PROFILE_OPTION,
    *COMPILE_OPTIONS,
    DRAFT_PROPERTY_OPTION,
    BATCH_INVARIANT_OPTION,
)
"""Pairing and execution of models."""


def generation_config_option(default: GenerationConfigUse) -> Callable[..., Any]:
    """The option `--generation-config`."""
    return click.option(
        "--generation-config",
        type=click.Choice(get_args(GenerationConfigUse)),
        default=default,
        show_default=True,
        help="Default sampling options. model: from the main model's generation_config.json; none: "
        "greedy.",
    )


LOADING_PIPELINE_OPTIONS = (
    *MODEL_OPTIONS,
    click.option(
        "--drafter",
        type=click.Choice(get_args(DrafterName)),
        help="Source of draft tokens. [model; suffix for --main without --draft] model: the draft "
        "model, --draft. suffix: what followed the longest match in the prompt, the output, "
        "--reference-texts or earlier outputs, without a draft model. both: suffix, or the draft "
        "model in rounds where it promises more. prompt-lookup: n-gram matches in prompt and "
        "output, as in other programs. none: plain decoding.",
    ),
    *RUNTIME_OPTIONS,
)

PIPELINE_OPTIONS = (*LOADING_PIPELINE_OPTIONS, generation_config_option("none"))

STATIC_SHAPES_OPTION = click.option(
    "--static-shapes",
    metavar="auto|none|N,N,...",
    default="auto",
    show_default=True,
    help="Compile the models for fixed numbers of tokens in a pass, in the background after two "
    "seconds of decoding: passes are faster, and take more memory. auto: for small models, the "
    "sizes that save most time; N,N,...: these sizes for the main model.",
)

BATCH_OPTIONS = (
    STATIC_SHAPES_OPTION,
    click.option(
        "--max-batch-size",
        type=int,
        default=signature(SpeculativePipeline).parameters["max_batch_size"].default,
        show_default=True,
        metavar="N",
        help="Maximum concurrent sequences; others wait.",
    ),
    click.option(
        "--max-prefill-tokens-per-step",
        type=int,
        metavar="N",
        help="Maximum prefill tokens of a pass for each prompt in it, while other requests decode. "
        f"[{Limits.max_prefill_tokens_per_step}]",
    ),
)
"""Loading options of commands with concurrent requests."""

SERVED_NAME_OPTION = click.option(
    "--served-model-name", metavar="NAME", help="Name of the model. [its folder's name]"
)

STRICT_FIELDS_OPTION = click.option(
    "--strict-fields",
    is_flag=True,
    help="Refuse unknown fields of requests. [ignore them, with a warning for each name]",
)

PIPELINE_NAMES = tuple(signature(SpeculativePipeline).parameters)


def pop_pipeline(options: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments of `SpeculativePipeline` out of a command's options."""
    pipeline = {name: options.pop(name) for name in PIPELINE_NAMES if name in options}
    pipeline["static_shapes"] = parse_sizes(pipeline["static_shapes"])
    pipeline["batch_invariant"] = parse_invariance(pipeline["batch_invariant"])
    for name in ("properties", "draft_properties"):
        # None, because a profile applies only if no properties are given.
        pipeline[name] = parse_properties(pipeline[name]) or None
    return pipeline


def typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the current command that the user gave; the others have their defaults."""
    source = click.get_current_context().get_parameter_source
    return {k: v for k, v in options.items() if source(k) is not ParameterSource.DEFAULT}


def model_name(main: str | None) -> str:
    """The default name of a model in requests: that of its folder."""
    return "ov-specdec" if main is None else Path(main).resolve().name


def with_options(
    options: Iterable[Callable[..., Any]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that gives a command several options, in order."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(tuple(options)):
            command = option(command)
        return command

    return decorate


def parse_invariance(given: str) -> WantedInvariance:
    """The value of `--batch-invariant`."""
    return "auto" if given == "auto" else given == "true"


def parse_sizes(given: str) -> WantedShapes:
    """The sizes of `--static-shapes`, or its keyword; `OptionError` for other values."""
    numbers = given.split(",")
    return check_sizes(list(map(int, numbers)) if all(map(str.isdecimal, numbers)) else given)


def parse_properties(pairs: Iterable[str]) -> dict[str, str]:
    """OpenVINO properties from KEY=VALUE; `OptionError` for other forms."""
    properties = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise OptionError(f"OpenVINO property '{pair}' must have the form KEY=VALUE")
        properties[key] = value
    return properties
