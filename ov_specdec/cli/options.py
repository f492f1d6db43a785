"""What `generate` and `compare` share: prompt, models, and the options of both."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from ov_specdec.arguments import usual_drafter
from ov_specdec.cli.generation_options import (
    GENERATION_OPTIONS,
    length_option,
    option_of,
)
from ov_specdec.cli.prompt import read_prompt
from ov_specdec.cli.terminal import console
from ov_specdec.drafters.factory import DrafterFactory, DrafterName, kind_of
from ov_specdec.engine import Limits
from ov_specdec.errors import OptionError
from ov_specdec.loading.devices import Precision
from ov_specdec.loading.generation_config import GenerationConfigUse
from ov_specdec.loading.invariance import WantedInvariance
from ov_specdec.loading.runtime_config import KvBackend
from ov_specdec.loading.static_shapes import StaticShapes, check_sizes
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.stats import BatchInvariance
from ov_specdec.text.messages import Message
from ov_specdec.text.pairing import PairingName

MODEL_OPTIONS = (
    click.option("--main", metavar="DIR", help="Main model: folder or Hub name. [embedded]"),
    click.option(
        "--draft",
        metavar="DIR",
        help="Draft model, which proposes tokens: folder or Hub name. [embedded]",
    ),
)
OUTPUT_OPTION = click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("models"),
    show_default=True,
    help="Folder that the model folders go into.",
)
DEVICE_OPTION = click.option("--device", default="CPU", show_default=True, help="OpenVINO device.")
PROFILE_OPTION = click.option(
    "--profile",
    metavar="auto|none|FILE",
    default="auto",
    show_default=True,
    help="Take up what ov-specdec tune has measured for these models on this machine.",
)
COMPILE_OPTIONS = (
    click.option(
        "--precision",
        type=click.Choice(get_args(Precision)),
        default="default",
        show_default=True,
        help="What to compute in; exact: f32, with nothing quantized but weights.",
    ),
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="OpenVINO property for both models; may be given several times.",
    ),
)
LOADING_OPTIONS = (
    click.option("--draft-device", help="Device of the draft model. [that of the main model]"),
    click.option(
        "--encoder-device",
        help="Device of the encoders of encoder-decoder models. [that of the model]",
    ),
    click.option(
        "--num-threads", type=int, metavar="N", help="CPU threads of each model. [OpenVINO decides]"
    ),
    click.option(
        "--cache-dir",
        metavar="DIR",
        help="Keep compiled models in this folder: later starts are faster.",
    ),
)
"""Where models run, and how they are loaded, for text and for speech."""

DRAFT_PROPERTY_OPTION = click.option(
    "--draft-property",
    "draft_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="The same for the draft model alone.",
)
PAIRING_OPTION = click.option(
    "--pairing",
    type=click.Choice(get_args(PairingName)),
    help="Draft with a model that has another tokenizer: by the tokens that both have, by its "
    "text, or by whichever suits the two. [such a draft is refused]",
)
BATCH_INVARIANT_OPTION = click.option(
    "--batch-invariant",
    type=click.Choice(["auto", "true", "false"]),
    default="auto",
    show_default=True,
    help="Run passes so that a text is the same, to the bit, with any drafter or none, alone or "
    "beside others. auto: where this machine can; true: or fail; false: a little faster without.",
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
        help="How KV caches are kept.",
    ),
    click.option(
        "--max-hidden-tokens",
        type=int,
        metavar="N",
        help="With --kv stateful: rejected draft tokens that stay in the KV cache, hidden, until "
        "there are more than N, when it is copied without them; 0: copy at every rejection. [128]",
    ),
    click.option(
        "--kv-cache-size",
        type=float,
        metavar="GB",
        help="Memory for the KV caches of both models, on each of their devices. [half of what is "
        "free, as it is needed]",
    ),
    click.option(
        "--max-model-len",
        type=int,
        metavar="N",
        help="Tokens that prompt and output may have together. [the main model's context]",
    ),
    PROFILE_OPTION,
    *COMPILE_OPTIONS,
    DRAFT_PROPERTY_OPTION,
    BATCH_INVARIANT_OPTION,
)
"""How models are paired, and how they run."""


def generation_config_option(default: GenerationConfigUse) -> Callable[..., Any]:
    """Whether a model's own way of sampling is taken up: `--generation-config`."""
    return click.option(
        "--generation-config",
        type=click.Choice(get_args(GenerationConfigUse)),
        default=default,
        show_default=True,
        help="model: sample as the main model's generation_config.json recommends; none: greedy, "
        "unless options say otherwise.",
    )


LOADING_PIPELINE_OPTIONS = (
    *MODEL_OPTIONS,
    click.option(
        "--drafter",
        type=click.Choice(get_args(DrafterName)),
        help="Where draft tokens come from. [model; suffix for --main without --draft] model: the "
        "draft model, --draft. suffix: what followed the same words before, in the prompt, the "
        "output, --reference-texts or earlier outputs; it needs no draft model. both: suffix, and "
        "the draft model where that promises more. prompt-lookup: the simpler form of suffix that "
        "other programs have, to compare with. none: plain decoding.",
    ),
    *RUNTIME_OPTIONS,
)
PIPELINE_OPTIONS = (*LOADING_PIPELINE_OPTIONS, generation_config_option("none"))


STATIC_SHAPES_OPTION = click.option(
    "--static-shapes",
    metavar="auto|none|N,N,...",
    default="auto",
    show_default=True,
    help="Compile the models once more for some numbers of tokens in a pass, in the background "
    "after two seconds of decoding: passes are faster, and take more memory. auto: small models, "
    "those numbers that save most; N,N,...: these for the main model.",
)


BATCH_OPTIONS = (
    STATIC_SHAPES_OPTION,
    click.option(
        "--max-batch-size",
        type=int,
        default=signature(SpeculativePipeline).parameters["max_batch_size"].default,
        show_default=True,
        metavar="N",
        help="Requests that run at a time; others wait.",
    ),
    click.option(
        "--max-prefill-tokens-per-step",
        type=int,
        metavar="N",
        help="Tokens of prompts that a pass reads while others are being answered. "
        f"[{Limits.max_prefill_tokens_per_step}]",
    ),
)
"""Options of loading for commands that run requests together."""

SERVED_NAME_OPTION = click.option(
    "--served-model-name", metavar="NAME", help="Name of the model. [that of its folder]"
)
STRICT_FIELDS_OPTION = click.option(
    "--strict-fields",
    is_flag=True,
    help="Refuse fields of requests that are not known. [they are ignored, with a warning for each "
    "name]",
)
SYSTEM_OPTION = click.option(
    "--system", metavar="TEXT", help="System message before the prompt, for chat models."
)

PROMPT_OPTIONS = (
    click.argument("prompt", nargs=-1, metavar="[PROMPT]"),
    click.option(
        "--prompt-file",
        metavar="F",
        help="Read the prompt from a file, - for stdin. [what is piped in, without a PROMPT]",
    ),
    SYSTEM_OPTION,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."),
)


PIPELINE_NAMES = tuple(signature(SpeculativePipeline).parameters)
GENERATION_NAMES = tuple(field.name for field in fields(GenerationOptions))


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of prompt, pipeline and generation.

    It is called with `prompt` (a text or messages), `pipeline` and `generation` (keyword arguments
    for `SpeculativePipeline` and its `generate`), and with its own options.
    """

    @functools.wraps(command)
    def gathered(
        prompt: tuple[str, ...], prompt_file: str | None, system: str | None, **options: Any
    ) -> None:
        pipeline = pop_pipeline(options)
        generation = pop_generation(options)
        check_generation(generation, pipeline)
        text = read_prompt(prompt, prompt_file)
        command(
            prompt=text if system is None else with_system(system, text),
            pipeline=pipeline,
            generation=generation,
            **options,
        )

    template = option_of("apply_chat_template")
    generation_options = (length_option(), *GENERATION_OPTIONS, template)
    loading_options = (*PIPELINE_OPTIONS, STATIC_SHAPES_OPTION)
    return with_options((*PROMPT_OPTIONS, *loading_options, *generation_options))(gathered)


def pop_pipeline(options: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments of `SpeculativePipeline` out of a command's options."""
    pipeline = {name: options.pop(name) for name in PIPELINE_NAMES if name in options}
    pipeline["static_shapes"] = parse_sizes(pipeline["static_shapes"])
    pipeline["batch_invariant"] = parse_invariance(pipeline["batch_invariant"])
    for name in ("properties", "draft_properties"):
        # None, for a profile is taken up only where no properties are given.
        pipeline[name] = parse_properties(pipeline[name]) or None
    return pipeline


def model_name(main: str | None) -> str:
    """What requests call a model unless a name is given: that of its folder."""
    return "ov-specdec" if main is None else Path(main).resolve().name


def pop_generation(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a generation out of a command's, and keep those that were typed.

    The others are left to the pipeline, which may take them from the model.
    """
    source = click.get_current_context().get_parameter_source
    generation = {name: options.pop(name) for name in GENERATION_NAMES if name in options}
    generation = {k: v for k, v in generation.items() if source(k) is not ParameterSource.DEFAULT}
    if "logit_bias" in generation:
        generation["logit_bias"] = dict(generation["logit_bias"])
    return generation


def with_system(system: str, prompt: str) -> list[Message]:
    """A conversation of a system message and the user's."""
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]


def with_options(
    options: Iterable[Callable[..., Any]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that gives a command several options, shown in their order."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(tuple(options)):
            command = option(command)
        return command

    return decorate


def check_generation(options: Mapping[str, Any], pipeline: Mapping[str, Any]) -> None:
    """Refuse, before models are loaded, what a generation would refuse afterwards."""
    drafter = pipeline["drafter"] or usual_drafter(pipeline["main"], pipeline["draft"])
    DrafterFactory(kind_of(drafter)).check(GenerationOptions.from_kwargs(options))


def make_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load the models, with a spinner on stderr.

    One request at a time, where nothing else is said.
    """
    with console.status("Loading models"):
        return SpeculativePipeline(**{"max_batch_size": 1, **arguments})


def prepare(pipeline: SpeculativePipeline) -> None:
    """Measure what passes cost and compile static shapes, with a spinner on stderr."""
    with console.status("Measuring, and compiling static shapes") as status:
        pipeline.prepare(
            lambda share: status.update(f"Measuring, and compiling static shapes: {share:.0%}")
        )


def make_lasting_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """The same for what will run for long: it is checked, too, whether passes are invariant."""
    pipeline = make_pipeline(arguments)
    see_invariance(pipeline)
    return pipeline


def see_invariance(pipeline: SpeculativePipeline) -> BatchInvariance:
    """Check whether passes of the main model agree, with a spinner on stderr."""
    with console.status("Checking whether passes agree") as status:
        return pipeline.check_batch_invariant(
            lambda share: status.update(f"Checking whether passes agree: {share:.0%}")
        )


def parse_invariance(given: str) -> WantedInvariance:
    """The value of `--batch-invariant`."""
    return "auto" if given == "auto" else given == "true"


def parse_sizes(given: str) -> StaticShapes:
    """The numbers of `--static-shapes`, or its word; `OptionError` for what is neither."""
    numbers = given.split(",")
    return check_sizes(list(map(int, numbers)) if all(map(str.isdecimal, numbers)) else given)


def parse_properties(pairs: Iterable[str]) -> dict[str, str]:
    """OpenVINO properties from KEY=VALUE; `OptionError` for what has another form."""
    properties = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise OptionError(f"OpenVINO property '{pair}' must have the form KEY=VALUE")
        properties[key] = value
    return properties
