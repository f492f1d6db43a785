"""Options that `generate`, `compare` and `chat` share: prompt and generation."""

import functools
import sys
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from ov_specdec.cli.declare import WAYS, Command, options_of, take, typed
from ov_specdec.cli.models import FOR_SEVERAL, PIPELINE
from ov_specdec.errors import OptionError
from ov_specdec.generation.pipeline_options import PipelineOptions
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import Options, option, require_utf8

GENERATION = GenerationOptions.model_fields

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
    """The options of a generation; refuses invalid ones before models are loaded.

    given: by the user; the pipeline has defaults for others, and may take them from the model.
    """
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
        raise OptionError(
            f"the prompt is {len(given)} arguments: put it into quotes, as in "
            f"{quote(' '.join(given))}"
        )
    name, prompt = "the prompt", given[0] if given else text
    if prompt is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise OptionError("there is no prompt: give a PROMPT or --prompt-file, or pipe text in")
        name, prompt = "stdin", WAYS["TEXT-FILE"].convert("-", None, None)
    require_utf8(name, prompt)  # Python passes other bytes of arguments as lone surrogates
    if not prompt:
        raise OptionError(f"{name} is empty: give at least one token of text, or a PROMPT")
    return prompt
