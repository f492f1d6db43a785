"""What several commands take: models, prompt, options of a generation; and how models start."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from ov_specdec.cli.declare import WAYS, Command, options_of, take, typed
from ov_specdec.cli.terminal import console
from ov_specdec.errors import OptionError
from ov_specdec.generation.pipeline_options import PipelineOptions, SpeechPipelineOptions
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import locate
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import Options, option, require_utf8
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.stats import BatchInvariance
from ov_specdec.speech_pipeline import SpeechPipeline

R = TypeVar("R")

PIPELINE, GENERATION = PipelineOptions.model_fields, GenerationOptions.model_fields

COMPILATION = ("precision", "properties")

FOR_SEVERAL = ("max_batch_size", "max_prefill_tokens_per_step", "chat_template")
"""Arguments that commands with one request at a time do not take."""

LOGPROBS = ("logprobs", "logprobs_mode", "prompt_logprobs")
"""Options of the command that can show log-probabilities."""

MEASURED_TOKENS = 128
"""Default tokens of outputs that are only measured."""


class Shared(Options):
    """Options besides those of models and generation."""

    prompt_file: str | None = option(
        None,
        "Read the prompt from a file, - for stdin.",
        unset="stdin if there is no PROMPT",
        metavar="TEXT-FILE",
        group="Prompt",
    )
    system: str | None = option(None, "System message, for chat models.", unset="none")
    as_json: bool = option(False, "Print one JSON object only.", flag="json", group="Output")


def shared_options(
    command: Command, *, without: Sequence[str] = (), max_new_tokens: int | None = None
) -> Command:
    """Give a command all options of prompt, pipeline and generation.

    It is called with `prompt` (a text or messages), `pipeline` (keyword arguments for
    `SpeculativePipeline`), `generation`, and its own options. without: of a generation's.
    max_new_tokens: the default.
    """

    @options_of(Shared.model_fields)
    @options_of(PIPELINE, without=FOR_SEVERAL)
    @options_of(GENERATION, without=("cache_prompt", *without), max_new_tokens=max_new_tokens)
    @functools.wraps(command)
    def gathered(
        arguments: tuple[str, ...], prompt_file: str | None, system: str | None, **options: Any
    ) -> None:
        pipeline = take(options, PIPELINE)
        given = {"max_new_tokens": max_new_tokens, **typed(take(options, GENERATION))}
        generation = check_generation(given, pipeline)
        text = read_prompt(arguments, prompt_file)
        own = {"role": "system", "content": system}
        prompt = text if system is None else [own, {"role": "user", "content": text}]
        command(prompt=prompt, pipeline=pipeline, generation=generation, **options)

    return gathered


def check_generation(given: Mapping[str, Any], pipeline: Mapping[str, Any]) -> GenerationOptions:
    """The options of a generation; refuses invalid ones before models are loaded."""
    options = GenerationOptions(**given)
    PipelineOptions(**pipeline).kind.check(options)
    return options


def read_prompt(given: Sequence[str], text: str | None) -> str:
    """The prompt from an argument, else the text of --prompt-file, else from a pipe on stdin.

    Raises `OptionError` for none or two prompts, and for one that is empty or not UTF-8.
    """
    if given and text is not None:
        raise OptionError("give a PROMPT or --prompt-file, not both")
    if len(given) > 1:
        remedy = f"put it into quotes, as in {quote(' '.join(given))}"
        raise OptionError(f"the prompt is {len(given)} arguments: {remedy}")
    name, prompt = "the prompt", given[0] if given else text
    if prompt is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise OptionError("there is no prompt: give a PROMPT or --prompt-file, or pipe text in")
        name, prompt = "stdin", WAYS["TEXT-FILE"].convert("-", None, None)
    require_utf8(name, prompt)  # Python passes other bytes of arguments as lone surrogates
    if not prompt:
        raise OptionError(f"{name} is empty: give at least one token of text, or a PROMPT")
    return prompt


def model_name(main: str | None) -> str:
    """The default name of a model in requests: that of its folder."""
    return "ov-specdec" if main is None else Path(main).resolve().name


def is_speech(main: str | None) -> bool:
    """Whether a main model is a speech model; the embedded one is not."""
    return main is not None and bool(ModelFolder.read(locate(main)).features)


def speech_arguments(pipeline: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that `SpeechPipeline` takes too; refuses others that were given."""
    known = SpeechPipelineOptions.model_fields
    for name in sorted(typed(pipeline).keys() - known.keys()):
        problem = f"{{{name}}} has no effect with a speech model"
        raise OptionError(f"{problem}: leave it out", **{name: pipeline[name]})
    return {name: pipeline[name] for name in known if name in pipeline}


def make_speech_pipeline(arguments: Mapping[str, Any]) -> SpeechPipeline:
    """Load a speech model and its draft."""
    with console.status("Loading models"):
        return SpeechPipeline(**arguments)


def make_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load the models. The default maximum batch size is 1."""
    with console.status("Loading models"):
        return SpeculativePipeline(**{"max_batch_size": 1, **arguments})


def prepare(models: SpeculativePipeline) -> None:
    """Measure passes and compile static shapes."""
    _show_share("Measuring, and compiling static shapes", models.prepare)


def verify_invariance(models: SpeculativePipeline) -> BatchInvariance:
    """Whether passes of the main model agree, checked unless that is known."""
    return _show_share("Checking whether passes agree", models.check_batch_invariant)


def _show_share(doing: str, run: Callable[[Callable[[float], None]], R]) -> R:
    """Run what calls its argument with the fraction that is done, and show that on stderr."""
    with console.status(doing) as status:
        return run(lambda share: status.update(f"{doing}: {share:.0%}"))
