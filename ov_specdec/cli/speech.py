"""Helpers of commands that also take a speech model."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from ov_specdec.cli.model_options import typed
from ov_specdec.cli.terminal import console
from ov_specdec.errors import Option, OptionError
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.locate import locate
from ov_specdec.speech_pipeline import SpeechPipeline

LOADING = tuple(signature(SpeechPipeline).parameters)


def is_speech(main: str | None) -> bool:
    """Whether a main model is a speech model; the embedded one is not."""
    return main is not None and bool(ModelFolder.read(locate(main)).features)


def speech_arguments(pipeline: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `SpeculativePipeline` that `SpeechPipeline` takes too.

    Refuses others that were given.
    """
    if others := sorted(typed(pipeline).keys() - set(LOADING)):
        raise OptionError(
            Option(others[0], pipeline[others[0]]),
            " has no effect with a speech model: leave it out",
        )
    return {name: pipeline[name] for name in LOADING if name in pipeline}


def make_speech_pipeline(arguments: Mapping[str, Any]) -> SpeechPipeline:
    """Load the models, with a spinner on stderr."""
    with console.status("Loading models"):
        return SpeechPipeline(**arguments)
