"""Models of a command: their options, and how they are loaded, with a spinner on stderr."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ov_specdec.cli.declare import typed
from ov_specdec.cli.terminal import console
from ov_specdec.errors import Option, OptionError
from ov_specdec.generation.pipeline_options import PipelineOptions, SpeechPipelineOptions
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import locate
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.planning.measurement import SEQUENCES
from ov_specdec.speech_pipeline import SpeechPipeline

R = TypeVar("R")

log = logging.getLogger("ov_specdec.server")

PIPELINE = PipelineOptions.model_fields

AGREEMENT, PREPARATION = "Checking whether passes agree", "Measuring, and compiling static shapes"

COMPILATION = ("precision", "properties")

FOR_SEVERAL = ("max_batch_size", "max_prefill_tokens_per_step", "chat_template")
"""Arguments that commands with one request at a time do not take."""


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
    is_invariant = show_share(AGREEMENT, pipeline.check_batch_invariant).is_on
    with console.status("Measuring passes"):
        curve = pipeline.measure_costs().main
    price = curve.at(SEQUENCES, SEQUENCES) / curve.at(SEQUENCES)
    if is_invariant and price > 1.2:  # below it there is nothing to say
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
