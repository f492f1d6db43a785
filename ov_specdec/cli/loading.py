"""Loads models for a command, with spinners on stderr."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from ov_specdec.cli.model_options import typed
from ov_specdec.cli.terminal import console
from ov_specdec.errors import Option, OptionError
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.locate import locate
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.speech_pipeline import SpeechPipeline
from ov_specdec.stats import BatchInvariance

OF_SPEECH = tuple(signature(SpeechPipeline).parameters)


def is_speech(main: str | None) -> bool:
    """Whether a main model is a speech model; the embedded one is not."""
    return main is not None and bool(ModelFolder.read(locate(main)).features)


def speech_arguments(pipeline: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `SpeculativePipeline` that `SpeechPipeline` takes too.

    Refuses others that were given.
    """
    if others := sorted(typed(pipeline).keys() - set(OF_SPEECH)):
        raise OptionError(
            Option(others[0], pipeline[others[0]]),
            " has no effect with a speech model: leave it out",
        )
    return {name: pipeline[name] for name in OF_SPEECH if name in pipeline}


def make_speech_pipeline(arguments: Mapping[str, Any]) -> SpeechPipeline:
    """Load a speech model and its draft."""
    with console.status("Loading models"):
        return SpeechPipeline(**arguments)


def make_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load the models. The default maximum batch size is 1."""
    with console.status("Loading models"):
        return SpeculativePipeline(**{"max_batch_size": 1, **arguments})


def make_lasting_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load models for a long run, and check batch invariance."""
    pipeline = make_pipeline(arguments)
    check_invariance(pipeline)
    return pipeline


def prepare(pipeline: SpeculativePipeline) -> None:
    """Measure the cost of passes and compile static shapes."""
    doing = "Measuring, and compiling static shapes"
    with console.status(doing) as status:
        pipeline.prepare(lambda share: status.update(f"{doing}: {share:.0%}"))


def check_invariance(pipeline: SpeculativePipeline) -> BatchInvariance:
    """Check whether passes of the main model agree."""
    doing = "Checking whether passes agree"
    with console.status(doing) as status:
        return pipeline.check_batch_invariant(lambda share: status.update(f"{doing}: {share:.0%}"))
