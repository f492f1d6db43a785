"""Models of a command: their options, and how they are loaded, with a spinner on stderr."""

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ov_specdec.cli.declare import Command
from ov_specdec.cli.terminal import console
from ov_specdec.errors import ModelError, Option, OptionError, shorten
from ov_specdec.generation.pipeline_options import PipelineOptions, SpeechPipelineOptions
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import check_place, locate
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.planning.measurement import SEQUENCES
from ov_specdec.speech_pipeline import SpeechPipeline

R = TypeVar("R")

log = logging.getLogger("ov_specdec.server")

PIPELINE = PipelineOptions.model_fields

AGREEMENT, PREPARATION = "Checking whether passes agree", "Measuring, and compiling static shapes"

MODELS = ("main", "draft")
COMPILATION = ("precision", "properties")
CONCURRENT = tuple(name for name in PIPELINE if name != "chat_template")
"""Arguments of commands with concurrent requests."""
ONE_REQUEST = tuple(
    n for n in CONCURRENT if n not in ("max_batch_size", "max_prefill_tokens_per_step")
)


def models_first(*roles: str, own: str = "") -> Callable[[Command], Command]:
    """Lets a command take its models as its first arguments, and not only by option.

    roles: of the models. own: further arguments, as the usage shows them; the command gets them as
    `arguments`.
    """
    usage = " ".join([*(f"[{role.upper()}]" for role in roles), own]).rstrip()

    def decorate(command: Command) -> Command:
        @click.argument("arguments", nargs=-1, metavar=usage)
        @functools.wraps(command)
        def named(arguments: tuple[str, ...], **options: Any) -> None:
            context = click.get_current_context()
            count = int(_has_model(arguments, options["main"])) if own else len(roles)
            for role, name in zip(roles, arguments[:count], strict=False):
                if context.get_parameter_source(role) is ParameterSource.COMMANDLINE:
                    second = Option(role, options[role])
                    raise OptionError(f"{role.upper()} is '{name}', and ", second, ": give it once")
                options[role] = name
            others = arguments[count:]
            if others and not own:
                raise click.UsageError(f"Got unexpected extra argument ({others[0]})", context)
            if not others and own and not own.startswith("["):
                raise click.UsageError(f"Missing argument '{own}'.", context)
            command(**options, **({"arguments": others} if own else {}))

        return named

    return decorate


def _has_model(arguments: Sequence[str], main: str | None) -> bool:
    """Whether the first argument is the model: it is a model's folder, or the first of several."""
    if arguments and os.path.isfile(f"{arguments[0]}/config.json"):  # noqa: PTH113 - may be any text
        return True
    if main is not None or len(arguments) < 2:
        return False
    try:
        check_place(arguments[0])
    except ModelError as error:
        rule = "the first of several arguments is the model, and one with spaces needs quotes"
        raise ModelError(f"{error} ({rule}: {shorten(' '.join(arguments))})") from error
    return True


def typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the current command that the user gave; the others have their defaults."""
    source = click.get_current_context().get_parameter_source
    return {k: v for k, v in options.items() if source(k) is not ParameterSource.DEFAULT}


def model_name(main: str | None) -> str:
    """The default name of a model in requests: that of its folder."""
    return "ov-specdec" if main is None else Path(main).resolve().name


def is_speech(main: str | None) -> bool:
    """Whether a main model is a speech model; the embedded one is not."""
    return main is not None and bool(ModelFolder.read(locate(main)).features)


def speech_arguments(pipeline: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `SpeculativePipeline` that `SpeechPipeline` takes too.

    Refuses others that were given.
    """
    if others := sorted(typed(pipeline).keys() - SpeechPipelineOptions.model_fields.keys()):
        raise OptionError(
            Option(others[0], pipeline[others[0]]),
            " has no effect with a speech model: leave it out",
        )
    return {name: pipeline[name] for name in SpeechPipelineOptions.model_fields if name in pipeline}


def make_speech_pipeline(arguments: Mapping[str, Any]) -> SpeechPipeline:
    """Load a speech model and its draft."""
    with console.status("Loading models"):
        return SpeechPipeline(**arguments)


def make_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load the models. The default maximum batch size is 1."""
    with console.status("Loading models"):
        return SpeculativePipeline(**{"max_batch_size": 1, **arguments})


def make_lasting_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load models for many requests, check batch invariance, and name its price if it is high."""
    pipeline = make_pipeline(arguments)
    if show_share(AGREEMENT, pipeline.check_batch_invariant).is_on:
        with console.status("Measuring passes"):
            curve = pipeline.measure_costs().main
        price = curve.at(SEQUENCES, SEQUENCES) / curve.at(SEQUENCES)
        if price > 1.2:  # below it there is nothing to say
            log.warning(
                "%d requests take %.1f times as long as %d tokens of one: "
                "--batch-invariant false may be faster, and their texts may then differ",
                *(SEQUENCES, price, SEQUENCES),
            )
    return pipeline


def show_share(doing: str, run: Callable[[Callable[[float], None]], R]) -> R:
    """Run what calls its argument with the fraction that is done, and show that on stderr."""
    with console.status(doing) as status:
        return run(lambda share: status.update(f"{doing}: {share:.0%}"))
